"""Cumulative windows kept as one growing accumulator emit what the same windows kept one by one
emit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.aggregates.base import Aggregator
from millwheel.core.machines.aligned_windows import AlignedMachine
from millwheel.core.machines.cumulative import CumulativeMachine
from millwheel.core.windows.contract import MANY, Effects, Times
from millwheel.core.windows.panes import Pane
from millwheel.core.windows.windows import Cumulative
from millwheel.testing import WindowHarness

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

rows = st.lists(st.tuples(st.integers(-50, 70), st.integers(-3, 4)), max_size=20)
shapes = st.sampled_from([(40, 10, 0), (12, 3, 5), (10, 10, 0), (30, 5, -2)])


def _order(pane: Pane) -> Any:
    return pane.window.end, pane.window.start, pane.index, not pane.retraction


@settings(deadline=None, max_examples=60)
@given(
    records=rows,
    shape=shapes,
    function=st.sampled_from(["count", "sum", "max", "count_distinct"]),
    accumulation=st.sampled_from(["discarding", "accumulating", "retracting"]),
    lateness=st.sampled_from([0, 3, 25, 500]),
    moves=st.lists(st.integers(0, 25), min_size=20, max_size=20),
    bundle=st.integers(1, 4),
    stored=st.booleans(),
    most=st.sampled_from([1, 2, 7, MANY]),
)
def test_panes_are_those_of_windows_kept_one_by_one(
    records: list[tuple[int, int]],
    shape: tuple[int, int, int],
    function: str,
    accumulation: str,
    lateness: int,
    moves: list[int],
    bundle: int,
    stored: bool,
    most: int,
) -> None:
    """However many windows a timer may fire at once."""
    window = Cumulative(*shape)
    settings: dict[str, Any] = {
        "accumulation": accumulation, "allowed_lateness": lateness, "aggregate": function,
        "stored": stored,
    }  # fmt: skip
    shared, native = WindowHarness(window, **settings), WindowHarness(window, **settings)
    assert isinstance(shared.machine, CumulativeMachine)
    shared._times = lambda: Times(shared.watermark, shared.now, most=most)  # type: ignore[method-assign]
    native.machine = AlignedMachine(shared.windowing, shared.aggregation)
    panes: list[list[Pane]] = []
    for harness in (shared, native):
        harness.advance_watermark(-60)
        for i in range(0, len(records), bundle):
            harness.push_bundle([("k", value, t) for t, value in records[i : i + bundle]])
            assert harness.open_windows("k") == sorted(
                harness.open_windows("k"), key=lambda w: (w.end, w.start)
            )
            harness.advance_watermark(min(150, harness.watermark + moves[i]))
        harness.advance_watermark(10_000)
        assert harness.state_of("k") == {}
        assert harness.timers("k") == []
        panes.append(sorted(harness.take(), key=_order))
    assert panes[0] == panes[1]
    assert [late.timestamp for late in shared.late] == [late.timestamp for late in native.late]


def test_a_day_window_that_emits_every_minute_since_midnight() -> None:
    harness = WindowHarness(Cumulative("1d", "1m"), aggregate="count_distinct")
    harness.push_bundle(
        [
            ("site", "ann", 30 * MINUTE),
            ("site", "bob", 32 * MINUTE + 1),
            ("site", "ann", 33 * MINUTE),
        ]
    )
    harness.advance_watermark(34 * MINUTE)
    assert [(pane.window.end // MINUTE, pane.result) for pane in harness.take()] == [
        (31, 1),
        (32, 1),
        (33, 2),
        (34, 2),
    ]
    harness.advance_watermark(DAY)
    panes = harness.take()
    assert len(panes) == 24 * 60 - 34
    assert {pane.window.start for pane in panes} == {0}
    assert harness.state_of("site") == {}


def test_with_changes_a_step_without_new_records_says_nothing() -> None:
    harness = WindowHarness(Cumulative("1d", "1m", changes=True), aggregate="count")
    harness.push_bundle([("site", "ann", 30 * MINUTE), ("site", "bob", 32 * MINUTE + 1)])
    harness.advance_watermark(DAY)
    assert [(pane.window.end // MINUTE, pane.result) for pane in harness.take()] == [
        (31, 1),
        (33, 2),
    ]


def test_with_changes_a_late_record_counts_from_the_next_step_on() -> None:
    harness = WindowHarness(Cumulative("1d", "1m", changes=True), aggregate="count")
    harness.push("site", "ann", 30 * MINUTE)
    harness.advance_watermark(40 * MINUTE)
    harness.push("site", "bob", 35 * MINUTE)
    harness.advance_watermark(DAY)
    assert [(pane.window.end // MINUTE, pane.result) for pane in harness.take()] == [
        (31, 1),
        (41, 2),
    ]
    assert harness.late == []


def test_with_changes_and_lateness_the_steps_after_a_late_record_are_corrected() -> None:
    harness = WindowHarness(
        Cumulative("1d", "1m", changes=True),
        aggregate="count",
        accumulation="retracting",
        allowed_lateness="1h",
    )
    harness.push_bundle([("site", "ann", 30 * MINUTE), ("site", "cid", 37 * MINUTE)])
    harness.advance_watermark(40 * MINUTE)
    harness.take()
    harness.push("site", "bob", 35 * MINUTE)
    assert [
        (pane.window.end // MINUTE, pane.result, pane.retraction) for pane in harness.take()
    ] == [
        (36, 2, False),
        (38, 2, True),
        (38, 3, False),
    ]


def test_a_day_of_25_hours_has_60_steps_more() -> None:
    harness = WindowHarness(Cumulative("1d", "1h", time_zone="Europe/Berlin"), aggregate="count")
    midnight = 1_729_980_000_000_000  # 2024-10-27 00:00 in Berlin; the clock goes back at 03:00
    harness.push("k", 1, midnight)
    harness.advance_watermark(midnight + 2 * DAY)
    assert len(harness.take()) == 25


@pytest.mark.parametrize("settings", [{"trigger": "x"}, {"output_time": "earliest"}])
def test_changes_need_the_plain_trigger_and_time(settings: dict[str, Any]) -> None:
    from millwheel.core.windows.triggers import AfterCount

    if "trigger" in settings:
        settings = {"trigger": AfterCount(1)}
    with pytest.raises(ValueError, match="leave out"):
        WindowHarness(Cumulative(10, 5, changes=True), **settings)


@pytest.mark.parametrize("lateness", [0, 1000])
def test_a_timer_fires_as_many_windows_as_it_may_and_is_set_for_the_next(lateness: int) -> None:
    harness = WindowHarness(Cumulative(100, 10), aggregate="count", allowed_lateness=lateness)
    for at in (5, 15, 35):
        harness.push("k", 1, at)
    (domain, tag, at), effects = harness.timers("k")[0], Effects()
    assert at == 9
    state = harness._state("k")
    harness.machine.on_timer(state, "k", tag, domain, at, Times(80, 0, most=3), effects)
    assert [(pane.window.end, pane.result) for pane in effects.panes] == [(10, 1), (20, 2), (30, 2)]
    assert [timer.at for timer in effects.timers] == [39]
    again = Effects()
    harness.machine.on_timer(state, "k", tag, domain, 39, Times(80, 0, most=100), again)
    assert [(pane.window.end, pane.result) for pane in again.panes] == [
        (end, 3) for end in (40, 50, 60, 70, 80)
    ]
    assert [timer.at for timer in again.timers] == [89]


def test_so_many_windows_are_due_with_a_timer_at_most() -> None:
    machine = CumulativeMachine(*_parts(Cumulative(100, 10)))
    assert machine.due_with(9, 9) == 1
    assert machine.due_with(9, 31) == 3
    assert machine.due_with(9, 2**62) == 11


def _parts(window: Cumulative) -> Any:
    harness = WindowHarness(window, aggregate="count")
    return harness.windowing, harness.aggregation, window


class Last(Aggregator[list[int]]):
    """Its result is the accumulator, which grows."""

    def create(self) -> list[int]:
        return []

    def add(self, acc: list[int], value: int, timestamp: int) -> list[int]:
        acc.append(value)
        return acc

    def merge(self, acc: list[int], other: list[int]) -> list[int]:
        acc.extend(other)
        return acc


def test_a_result_is_what_it_was_although_the_accumulator_grows_behind_it() -> None:
    harness = WindowHarness(Cumulative(100, 10), aggregate=Last())
    harness.push_bundle([("k", 1, 5), ("k", 2, 25)])
    harness.advance_watermark(50)
    assert [pane.result for pane in harness.take()] == [[1], [1], [1, 2], [1, 2], [1, 2]]
    harness.push_bundle([("k", 3, 65)])
    harness.advance_watermark(80)
    assert [pane.result for pane in harness.take()] == [[1, 2], [1, 2, 3], [1, 2, 3]]
