from __future__ import annotations

from dataclasses import replace

import pytest

from millwheel.core.model.failures import STOP, CallKind, First, OnError, Tally
from millwheel.core.pipeline.graph import ClusterView
from millwheel.errors import BrokenError
from millwheel.launch.progress.failures import Failures
from tests.unit.launch.progress.test_summary import graph, view

FIRST = First(
    "traffic", "TypeError at a.py:3 in f", "traffic failed: TypeError: no (a.py:3 in f; key 'ann')"
)


def failing(tried: int, failed: int, what: str = "record") -> ClusterView:
    found = view()
    node = replace(
        found.nodes["traffic"],
        tallies={CallKind("traffic", what): Tally(tried, failed)},
        firsts=[FIRST],
    )
    return ClusterView({**found.nodes, "traffic": node})


def failures(policy: OnError | None = None) -> tuple[Failures, list[str]]:
    said: list[str] = []
    given = graph()
    if policy is not None:
        computation = given.nodes["traffic"].computation
        assert computation is not None
        given.nodes["traffic"] = replace(
            given.nodes["traffic"], computation=replace(computation, on_error=policy)
        )
    return Failures(given, "/the/root", said.append), said


def test_the_first_failure_of_each_kind_is_told_once() -> None:
    looking, said = failures()
    looking.look(None, 0.0)
    for second in range(3):
        looking.look(failing(1_000, 1), float(second))
    assert said == [f"traffic failed: {FIRST.sentence}"]


def test_too_many_failures_end_the_run_with_a_sentence_once_all_have_had_time_to_report() -> None:
    looking, _ = failures()
    looking.look(failing(1_000, 900), 10.0)
    looking.look(failing(1_000, 900), 10.5)
    with pytest.raises(BrokenError) as caught:
        looking.look(failing(1_000, 900), 11.1)
    for part in (
        "traffic failed on 900 of its last 1,000 records",
        "10% of at least 100",
        "a.py:3",
        "/the/root",
    ):
        assert part in str(caught.value)
    assert "on_error: dead_letter" in str(caught.value)


def test_a_share_that_turns_out_to_be_small_ends_nothing() -> None:
    looking, _ = failures()
    looking.look(failing(1_000, 900), 10.0)
    looking.look(failing(100_000, 900), 10.5)
    looking.look(failing(1_000, 900), 11.1)


def test_the_first_failure_and_the_end_of_the_input_leave_no_time() -> None:
    with pytest.raises(BrokenError, match="one is enough"):
        failures(STOP)[0].look(failing(1_000, 1), 0.0)
    with pytest.raises(BrokenError, match="of its last 150 timers"):
        failures()[0].look(failing(150, 90, "timer"), 0.0, at_the_end=True)
