"""The draft of a pipeline in Python becomes a spec, or all its mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel import (
    FileSink,
    InjectionSource,
    Pipeline,
    param,
)
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.errors import PipelineError


def one(check: Any, text: str, **more: Any) -> ComputationSpec:
    return check(text, **more).computations[0]


def small() -> tuple[Pipeline, Any]:
    pipeline = Pipeline("small")
    return pipeline, pipeline.read("hits", InjectionSource(), timestamp="ts")


@pytest.mark.parametrize(
    ("call", "name", "output"),
    [
        ("hits.map('x')", "hits_map", "hits_map"),
        ("hits.map('x', name='shape')", "shape", "shape"),
        ("hits.map('x', output='pages')", "pages", "pages"),
        ("hits.map('x', name='shape', output='pages')", "shape", "pages"),
        ("hits.window(Global()).aggregate()", "hits_windows", "hits_windows"),
    ],
)
def test_a_computation_is_named_after_its_output_unless_it_has_a_name(
    check: Any, call: str, name: str, output: str
) -> None:
    found = one(check, call)
    assert (found.name, found.outputs) == (name, (output,))


def test_an_option_that_no_computation_has_is_an_error() -> None:
    with pytest.raises(
        TypeError, match="a computation has no option 'shard'; did you mean 'shards'"
    ):
        small()[1].map("x", shard=3)


def test_all_mistakes_are_told_at_once(problems: Any) -> None:
    assert (
        len(
            problems(
                "hits.map('a =', name='a')\nhits.write(5)\nhits.map('x', shards=0, name='b')\n"
            )
        )
        == 3
    )


def test_a_pipeline_that_reads_nothing_is_told_so(problems: Any) -> None:
    head = "from millwheel import Pipeline\n\np = Pipeline('p')\n"
    assert problems("", head=head) == [
        "p.py:3: streams: the pipeline reads nothing; "
        "write for example read('hits', FileSource('hits.jsonl', 'jsonl'), …)"
    ]


def test_a_spec_of_a_wrong_pipeline_is_an_error() -> None:
    pipeline, hits = small()
    hits.filter("a =").write(FileSink(param("out")))
    with pytest.raises(
        PipelineError, match=r"test_draft\.py:\d+: computations\.hits_filter\.filter: column"
    ):
        pipeline.spec({"out": "x"})
