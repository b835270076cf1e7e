"""Chains of steps are one computation, unless what lies between is seen by somebody else."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import StepKind
from millwheel.testing import PipelineHarness

CHAIN = "hits.map('a').filter('b').filter('c').flat_map('d', output='end')\n"


def steps(computation: ComputationSpec) -> list[tuple[StepKind, str]]:
    return [(step.kind, step.expression) for step in computation.work.steps]


def test_a_chain_is_one_computation_with_the_last_ones_name(check: Any) -> None:
    (found,) = check(CHAIN).computations
    assert (found.name, found.outputs, found.inputs[0].stream) == ("end", ("end",), "hits")
    assert steps(found) == [
        (StepKind.MAP, "a"),
        (StepKind.FILTER, "b"),
        (StepKind.FILTER, "c"),
        (StepKind.FLAT_MAP, "d"),
    ]


def test_the_key_of_the_chain_is_that_of_its_first_step(check: Any) -> None:
    (found,) = check("hits.key_by('x').map('a').filter('b')\n").computations
    assert found.inputs[0].key.names == ("x",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("hits.map('a', name='one').filter('b')", ["one", "one_filter"]),
        ("hits.map('a', output='one').filter('b')", ["one", "one_filter"]),
        (
            "m = hits.map('a')\nm.filter('b')\nm.filter('c')",
            ["hits_map", "hits_map_filter", "hits_map_filter_2"],
        ),
        ("hits.map('a').write(StdoutSink()).filter('b')", ["hits_map", "hits_map_filter"]),
        ("hits.map('a').key_by('x').filter('b')", ["hits_map", "hits_map_filter"]),
        ("hits.map('a', shards=2).filter('b', shards=3)", ["hits_map", "hits_map_filter"]),
        ("hits.map('a', delivery='at_least_once').filter('b')", ["hits_map", "hits_map_filter"]),
        ("hits.map('a').flatten(p.dead_letters).filter('b')", ["hits_map", "hits_map_filter"]),
        ("hits.map('a').window(Global()).aggregate()", ["hits_map", "hits_map_windows"]),
        (
            "p.stream('hits_map', fields={'n': int})\nhits.map('a').filter('b')",
            ["hits_map", "hits_map_filter"],
        ),
        (
            (
                "hits.map('a')\nhits.filter('b', output='hits_map')\np.stream('hits_map').map('c',"
                " name='d')"
            ),
            None,
        ),
    ],
)
def test_what_others_see_stays_a_computation_of_its_own(
    check: Any, text: str, names: list[str] | None
) -> None:
    found = [each.name for each in check(text).computations]
    assert found == (names or ["hits_map", "hits_map_2", "d"])


def test_equal_dials_do_not_part_a_chain(check: Any) -> None:
    (found,) = check("hits.map('a', shards=2).filter('b', shards=2)").computations
    assert (found.shards, len(found.work.steps), found.inputs[0].key.kind) == (2, 2, KeyKind.RECORD)


def test_a_mistake_in_a_chain_is_named_in_its_own_line(problems: Any) -> None:
    text = (
        "first = hits.map('a')\nsecond = first.filter('b =')\nsecond.map('codes:nothing',"
        " name='end')\n"
    )
    assert [problem.partition(" column")[0][:60] for problem in problems(text)] == [
        "p.py:6: computations.end.steps[1].filter:",
        "p.py:7: computations.end.steps[2].map: there is no module 'c",
    ]


def test_a_chain_does_what_its_steps_do(tmp_path: Any) -> None:
    text = (
        "from millwheel import *\np = Pipeline('p')\nhits = p.read('hits', InjectionSource(),"
        " timestamp='t')\n"
    )
    text += "evens = hits.flat_map(lambda v: range(v['n'])).filter(lambda n: n % 2 == 0)\n"
    text += "evens.map(lambda n: n * 10).filter(lambda n: n > 0).map(lambda n: n + 1, name='end')\n"
    (tmp_path / "p.py").write_text(text + "evens.map(lambda n: -n, name='minus')\n")
    with PipelineHarness(f"{tmp_path}/p.py") as harness:
        assert [len(each.work.steps) for each in harness.spec.computations] == [2, 3, 1]
        harness.push("hits", {"t": 1, "n": 6})
        assert sorted(harness.read("end")) == [21, 41]
        assert sorted(harness.read("minus")) == [-4, -2, 0]
