from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.graph import retracting_streams
from millwheel.core.pipeline.work import TopSpec
from tests.unit.language.spec.parts.test_steps import computation


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"deduplicate": "{keep: last}"}, TopSpec(latest=True)),
        ({"deduplicate": "{keep: first}"}, TopSpec()),
        ({"top": "{by: v, k: 3}"}, TopSpec(("v",), 3)),
        (
            {"top": "{by: [v desc, 'a + b'], k: 3, rank: place}"},
            TopSpec(("v desc", "a + b"), 3, "place"),
        ),
    ],
)
def test_the_first_rows_are_taken_back_when_they_change(
    check: Any, fields: dict[str, str], expected: TopSpec
) -> None:
    spec = check(computation(**fields))
    assert spec.computations[0].work == expected
    assert retracting_streams(spec) == set(spec.computations[0].outputs)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"deduplicate": "{keep: last, within: 1m}"},
            "deduplicate.within: keep: last is the last record of a key for ever; leave within out",
        ),
        (
            {"deduplicate": "{keep: first, by: [a]}"},
            "deduplicate.by: keep: first is one record of each key; leave by out",
        ),
        ({"deduplicate": "{by: [a]}"}, "write for example within: 10m, or keep: first"),
        ({"deduplicate": "{keep: newest}"}, "deduplicate.keep"),
        ({"top": "{k: 3}"}, "top.by: is missing; what the order is; write for example by:"),
        ({"top": "{by: a}"}, "top.k: is missing; how many records of each key"),
        ({"top": "{by: a, k: 0}"}, "top.k"),
        ({"top": "{by: 'a + desc', k: 1}"}, "top.by: column 3"),
        (
            {"top": "{by: a desc nulls lst, k: 1}"},
            "top.by: 'a desc nulls lst' is no order: behind its expression stand asc or desc",
        ),
        ({"top": "{by: a nulls, k: 1}"}, "top.by: 'a nulls' is no order"),
        ({"top": "{by: a, k: 1, rank: 'a b'}"}, "top.rank: is the name of a field, not 'a b'"),
        ({"top": "{by: a, k: 1}", "deduplicate": "{keep: last}"}, "a computation does one of"),
        (
            {"top": "{by: a, k: 1}", "productions": "weak"},
            "other rows could be taken back than those that have left; leave it out",
        ),
        ({"top": "{by: a, k: 1}", "output": ""}, "computations.c.output: is missing"),
    ],
)
def test_what_is_wrong_with_first_rows_is_said(
    problems: Any, fields: dict[str, str], expected: str
) -> None:
    assert expected in "\n".join(problems(computation(**fields)))


def test_windows_behind_first_rows_are_refused(problems: Any) -> None:
    text = computation(top="{by: a, k: 1}", output="best") + (
        "  w: {input: best, window: {tumbling: 1m}, aggregate: {n: count}, output: counts}\n"
    )
    assert "of whose versions chance decides" in "\n".join(problems(text))
