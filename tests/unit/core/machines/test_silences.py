"""``emit: empty``: a key that falls silent says so once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.machines.aligned_windows import SilencesMachine
from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.panes import Timing
from millwheel.core.windows.windows import Tumbling
from millwheel.testing import WindowHarness


def _found(harness: WindowHarness) -> list[tuple[Any, int, int, Any]]:
    return [(pane.key, pane.window.start, pane.window.end, pane.result) for pane in harness.take()]


def test_behind_the_last_record_is_one_empty_window_and_then_the_key_is_forgotten() -> None:
    harness = WindowHarness(Tumbling(10, empty=True), aggregate="count")
    harness.push_bundle([("k", 1, 3), ("k", 1, 12)])
    harness.advance_watermark(20)
    assert _found(harness) == [("k", 0, 10, 1), ("k", 10, 20, 1)]
    assert harness.open_windows("k") == [(20, 30)]
    harness.advance_watermark(29)
    assert _found(harness) == []
    harness.advance_watermark(30)
    assert _found(harness) == [("k", 20, 30, 0)]
    assert harness.state_of("k") == {}
    assert harness.timers("k") == []
    harness.advance_watermark(100)
    harness.push("k", 1, 105)
    harness.advance_watermark(MAX_TIME)
    assert _found(harness) == [("k", 100, 110, 1), ("k", 110, 120, 0)]


def test_an_empty_pane_is_on_time_and_has_the_last_instant_of_its_window() -> None:
    harness = WindowHarness(
        Tumbling(10, empty=True), aggregate={"n": "count", "most": {"max": "v"}}
    )
    harness.push("k", {"v": 4}, 3)
    harness.advance_watermark(50)  # past both windows at once
    _, pane = harness.take()
    assert (pane.result, pane.timestamp, pane.timing) == (
        {"n": 0, "most": None},
        19,
        Timing.ON_TIME,
    )
    assert (pane.index, pane.is_first, pane.is_last, pane.retraction) == (0, True, True, False)


def test_records_that_are_dropped_as_late_or_filtered_break_no_silence() -> None:
    harness = WindowHarness(Tumbling(10, empty=True), aggregate={"n": "count"})
    harness.push("k", {"v": 1}, 3)
    harness.advance_watermark(20)
    harness.push("k", {"v": 1}, 12)
    assert _found(harness) == [("k", 0, 10, {"n": 1}), ("k", 10, 20, {"n": 0})]
    assert [late.timestamp for late in harness.late] == [12]
    harness.advance_watermark(MAX_TIME)
    assert _found(harness) == []


def test_the_window_behind_a_day_is_a_day_of_its_own_length() -> None:
    hour = 3_600_000_000
    harness = WindowHarness(Tumbling("1d", time_zone="Europe/Paris", empty=True), aggregate="count")
    start = 1_774_652_400_000_000  # 2026-03-28 00:00 in Paris; the 29th has 23 hours
    harness.push("k", 1, start)
    harness.advance_watermark(MAX_TIME)
    day = 24 * hour
    assert _found(harness) == [
        ("k", start, start + day, 1),
        ("k", start + day, start + day + 23 * hour, 0),
    ]


def test_nothing_lies_behind_the_end_of_time() -> None:
    half = 2**62
    harness = WindowHarness(Tumbling(half, empty=True), aggregate="count")
    harness.push("k", 1, half - 1)
    harness.advance_watermark(MAX_TIME)
    assert _found(harness) == [("k", 0, half, 1), ("k", half, MAX_TIME, 0)]
    harness = WindowHarness(Tumbling(half, offset=half - 1, empty=True), aggregate="count")
    harness.push_bundle([("k", 1, half - 1), ("k", 1, 0)])
    harness.advance_watermark(MAX_TIME)
    assert [found[1:] for found in _found(harness)] == [(-1, half - 1, 1), (half - 1, MAX_TIME, 1)]


@settings(deadline=None, max_examples=80)
@given(
    records=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 120)), max_size=15),
    moves=st.lists(st.integers(0, 45), min_size=15, max_size=15),
    bundle=st.integers(1, 4),
    stored=st.booleans(),
)
def test_every_window_with_records_and_the_first_one_without_emit_once(
    records: list[tuple[str, int]], moves: list[int], bundle: int, stored: bool
) -> None:
    harness = WindowHarness(Tumbling(10, empty=True), aggregate="count", stored=stored)
    assert isinstance(harness.machine, SilencesMachine)
    counts: dict[tuple[str, int], int] = defaultdict(int)
    watermark = 0
    for i in range(0, len(records), bundle):
        some = records[i : i + bundle]
        harness.push_bundle([(key, 1, at) for key, at in some])
        for key, at in some:
            if at // 10 * 10 + 10 > watermark:
                counts[key, at // 10 * 10] += 1
        watermark += moves[i]
        harness.advance_watermark(watermark)
    harness.advance_watermark(MAX_TIME)
    empty = {(key, start + 10) for key, start in counts} - counts.keys()
    expected = [(key, start, start + 10, n) for (key, start), n in counts.items()]
    assert sorted(_found(harness)) == sorted(
        [*expected, *((key, start, start + 10, 0) for key, start in empty)]
    )
    assert harness.state_of("a") == harness.state_of("b") == {}


@pytest.mark.parametrize("bundle", [1, 2, 5])
def test_bundles_do_not_matter(bundle: int) -> None:
    records = [("k", 1, at) for at in (1, 2, 15, 31, 32, 77)]
    harness = WindowHarness(Tumbling(10, empty=True), aggregate="count")
    for i in range(0, len(records), bundle):
        harness.push_bundle(records[i : i + bundle])
        harness.advance_watermark(records[min(i + bundle, len(records)) - 1][2])
    harness.advance_watermark(MAX_TIME)
    assert [(start, n) for _, start, _, n in _found(harness)] == [
        (0, 2), (10, 1), (20, 0), (30, 2), (40, 0), (70, 1), (80, 0),
    ]  # fmt: skip
