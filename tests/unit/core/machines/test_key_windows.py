"""Key windows emit what sliding windows would emit, but only where it changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.model.times import LAST_TIME, MAX_TIME
from millwheel.core.windows.contract import Effects, Times
from millwheel.core.windows.panes import Timing
from millwheel.core.windows.triggers import AfterCount
from millwheel.core.windows.windows import Sliding
from millwheel.testing import WindowHarness

Rows = list[tuple[int, int]]

rows = st.lists(st.tuples(st.integers(-60, 60), st.integers(-3, 4)), max_size=25)
quick = settings(deadline=None, max_examples=50)
shapes = st.sampled_from([(4, 1, 0), (10, 5, 0), (12, 3, 2), (6, 6, 1), (20, 2, 0)])
functions = st.sampled_from(["count", "sum", "max", "count_distinct", "last", "mean"])


def _step_function(
    records: Rows, shape: tuple[int, int, int], function: str
) -> list[tuple[int, Any]]:
    """Native results on the whole grid, equal neighbours removed, starting from the result of
    nothing."""
    size, every, offset = shape
    empty = WindowHarness(Sliding(size, every, offset), aggregate=function)
    acc = empty.machine.aggregation
    nothing = last = acc.result(acc.create())
    steps = []
    first = (min((t for t, _ in records), default=0) - offset) // every * every + offset
    for end in range(first, max((t for t, _ in records), default=0) + size + 2 * every, every):
        inside = [(t, v) for t, v in records if end - size <= t < end]
        result = (
            acc.result(acc.add_many(acc.create(), [v for _, v in inside], [t for t, _ in inside]))
            if inside
            else nothing
        )
        if result != last:
            steps.append((end, result))
            last = result
    return steps


def _harness(shape: tuple[int, int, int], function: str, **settings: Any) -> WindowHarness:
    size, every, offset = shape
    return WindowHarness(Sliding(size, every, offset, changes=True), aggregate=function, **settings)


def test_the_example_of_eight_key_windows_where_native_ones_are_thirteen() -> None:
    native = WindowHarness(Sliding(4, 1), aggregate="count")
    changes = WindowHarness(Sliding(4, 1, changes=True), aggregate="count")
    for harness in (native, changes):
        for timestamp in (0, 5, 10, 11):
            harness.push("k", 1, timestamp)
        harness.advance_watermark(100)
    assert len(native.take()) == 13
    panes = changes.take()
    assert [(tuple(pane.window), pane.result) for pane in panes] == [
        ((-3, 1), 1),
        ((1, 5), 0),
        ((2, 6), 1),
        ((6, 10), 0),
        ((7, 11), 1),
        ((8, 12), 2),
        ((11, 15), 1),
        ((12, 16), 0),
    ]
    assert all(pane.timing is Timing.ON_TIME and pane.is_last for pane in panes)
    assert changes.state_of("k") == {}


@quick
@given(
    records=rows,
    shape=shapes,
    function=functions,
    cuts=st.lists(st.integers(1, 6)),
    stored=st.booleans(),
)
def test_changes_are_the_native_results_without_equal_neighbours(
    records: Rows, shape: tuple[int, int, int], function: str, cuts: list[int], stored: bool
) -> None:
    """Disorder within the watermark, any bundles, any moves of the watermark that make nothing
    late."""
    harness = _harness(shape, function, stored=stored)
    position = 0
    for cut in [*cuts, len(records)]:
        harness.push_bundle([("k", value, t) for t, value in records[position : position + cut]])
        position += cut
        remaining = [t for t, _ in records[position:]]
        if remaining and min(remaining) > harness.watermark:
            harness.advance_watermark(min(remaining))
    harness.advance_watermark(10_000)
    panes = harness.take()
    assert [(pane.window.end, pane.result) for pane in panes] == _step_function(
        records, shape, function
    )
    assert len(panes) <= 2 * len(records)
    assert harness.state_of("k") == {}
    assert harness.timers("k") == []


def test_a_record_that_changes_nothing_makes_no_pane() -> None:
    harness = WindowHarness(Sliding(4, 1, changes=True), aggregate="count")
    harness.push_bundle([("k", 1, 0), ("k", 1, 4), ("k", 1, 8)])
    harness.advance_watermark(100)
    assert [(pane.window.end, pane.result) for pane in harness.take()] == [(1, 1), (13, 0)]


def test_a_record_behind_its_last_window_is_late() -> None:
    harness = WindowHarness(Sliding(4, 1, changes=True), aggregate="count")
    harness.advance_watermark(10)
    harness.push("k", 1, 6)
    assert [late.timestamp for late in harness.late] == [6]
    harness.push("k", 1, 7)  # its last window, [7, 11), is still open
    assert len(harness.late) == 1
    harness.advance_watermark(12)
    assert [(pane.window.end, pane.result) for pane in harness.take()] == [(11, 1), (12, 0)]


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"trigger": AfterCount(2)}, "leave out trigger"),
        ({"output_time": "earliest"}, "output_time"),
        ({"allowed_lateness": 5}, "accumulation: accumulating or retracting"),
        ({"takes_retractions": True}, "take no retractions"),
    ],
)
def test_what_cannot_work_is_refused_with_the_fix(settings: dict[str, Any], fix: str) -> None:
    with pytest.raises(ValueError, match=fix):
        WindowHarness(Sliding(4, 1, changes=True), **settings)


def test_a_size_that_is_no_multiple_of_the_slide_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of the slide"):
        Sliding("10s", "3s", changes=True)


@pytest.mark.parametrize("lateness", [0, 100])
def test_the_last_window_ends_with_time_and_leaves_nothing(lateness: int) -> None:
    accumulation = "accumulating" if lateness else "discarding"
    harness = WindowHarness(
        Sliding(60, 20, changes=True),
        aggregate="count",
        accumulation=accumulation,
        allowed_lateness=lateness,
    )
    effects, state = Effects(), harness._state("k")
    harness.machine.on_records(
        state, "k", [(1, LAST_TIME), (1, LAST_TIME - 70)], Times(0, 0), effects
    )
    harness._perform(effects)
    harness.advance_watermark(MAX_TIME)
    assert [(pane.result, pane.window.end) for pane in harness.take()][-1] == (1, MAX_TIME)
    assert (harness.state_of("k"), harness.timers("k")) == ({}, [])
