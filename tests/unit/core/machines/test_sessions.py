"""Sessions merge, are judged one record at a time, and forget everything in the end."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.aggregates.base import Aggregator
from millwheel.core.model.records import Domain
from millwheel.core.windows.combinations import AfterAny, Repeat
from millwheel.core.windows.panes import Pane, Timing
from millwheel.core.windows.triggers import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    Never,
)
from millwheel.core.windows.windows import Custom, Sessions, Window
from millwheel.testing import WindowHarness

quick = settings(deadline=None, max_examples=60)
times = st.lists(st.integers(-40, 60), max_size=20)
triggers = st.sampled_from(
    [
        Default(),
        AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
        Repeat(AfterAny(AfterCount(3), AfterProcessingTime(5))),
        Never(),
    ]
)


def _sessions(timestamps: list[int], gap: int) -> dict[tuple[int, int], list[int]]:
    found: list[list[int]] = []
    for t in sorted(timestamps):
        if found and t < found[-1][-1] + gap:
            found[-1].append(t)
        else:
            found.append([t])
    return {(group[0], group[-1] + gap): group for group in found}


def _standing(panes: list[Pane]) -> dict[Window, Any]:
    found: dict[Window, Any] = {}
    for pane in panes:
        if pane.retraction:
            assert found.pop(pane.window) == pane.result
        else:
            found[pane.window] = pane.result
    return found


@quick
@given(
    timestamps=times,
    gap=st.integers(1, 20),
    trigger=triggers,
    moves=st.lists(st.integers(0, 15), min_size=20, max_size=20),
    bundle=st.integers(1, 4),
    stored=st.booleans(),
)
def test_what_stands_after_all_retractions_are_the_sessions_of_all_records(
    timestamps: list[int], gap: int, trigger: Any, moves: list[int], bundle: int, stored: bool
) -> None:
    harness = WindowHarness(
        Sessions(gap), trigger, "retracting", allowed_lateness=1000, stored=stored
    )
    for i in range(0, len(timestamps), bundle):
        harness.push_bundle([("k", t, t) for t in timestamps[i : i + bundle]])
        harness.advance_watermark(max(harness.watermark, -40 + sum(moves[: i + 1])))
        harness.advance_processing_time(harness.now + moves[i])
    harness.advance_watermark(10_000)
    standing = {
        tuple(window): sorted(values) for window, values in _standing(harness.take()).items()
    }
    assert standing == _sessions(timestamps, gap)
    assert harness.state_of("k") == {}
    assert harness.timers("k") == []
    assert harness.holds == {}


@quick
@given(timestamps=times, gap=st.integers(1, 20), cuts=st.lists(st.integers(1, 5)))
def test_how_records_are_cut_into_bundles_does_not_matter(
    timestamps: list[int], gap: int, cuts: list[int]
) -> None:
    whole = WindowHarness(Sessions(gap), accumulation="accumulating")
    parts = WindowHarness(Sessions(gap), accumulation="accumulating", stored=True)
    whole.push_bundle([("k", t, t) for t in timestamps])
    position = 0
    for cut in [*cuts, len(timestamps)]:
        parts.push_bundle([("k", t, t) for t in timestamps[position : position + cut]])
        position += cut
    for harness in (whole, parts):
        harness.advance_watermark(1000)
    assert [(pane.window, sorted(pane.values)) for pane in whole.take()] == [
        (pane.window, sorted(pane.values)) for pane in parts.take()
    ]


def test_a_late_record_joins_two_closed_sessions() -> None:
    harness = WindowHarness(
        Sessions(10), accumulation="retracting", allowed_lateness=100, aggregate="sum"
    )
    harness.push_bundle([("k", 1, 0), ("k", 2, 15)])
    harness.advance_watermark(50)
    assert [(tuple(pane.window), pane.result) for pane in harness.take()] == [
        ((0, 10), 1),
        ((15, 25), 2),
    ]
    harness.push("k", 4, 7)
    assert [(tuple(p.window), p.result, p.retraction, p.timing) for p in harness.take()] == [
        ((0, 10), 1, True, Timing.ON_TIME),
        ((15, 25), 2, True, Timing.ON_TIME),
        ((0, 25), 7, False, Timing.LATE),
    ]


def test_touching_sessions_stay_apart() -> None:
    harness = WindowHarness(Sessions(10))
    harness.push_bundle([("k", "a", 0), ("k", "b", 10)])
    assert harness.open_windows("k") == [(0, 10), (10, 20)]


def test_a_growing_session_sets_no_new_timer() -> None:
    harness = WindowHarness(Sessions(10))
    for t in range(0, 50, 5):
        harness.push("k", t, t)
        assert harness.timers("k")[0][2] == 9
    harness.advance_watermark(20)
    assert harness.take() == []
    assert harness.timers("k")[0][2] == 54


def test_a_late_record_can_reopen_a_session_that_had_ended() -> None:
    """Its new end lies ahead, so it waits for the watermark again."""
    harness = WindowHarness(Sessions(10), accumulation="accumulating", allowed_lateness=100)
    harness.push("k", "a", 0)
    harness.advance_watermark(12)
    harness.take()
    harness.push("k", "b", 9)
    assert harness.take() == []
    harness.advance_watermark(19)
    [pane] = harness.take()
    assert (pane.window, pane.values, pane.timing, pane.index) == (
        (0, 19),
        ["a", "b"],
        Timing.ON_TIME,
        1,
    )


def test_a_record_whose_own_window_is_gone_is_late_even_beside_an_open_session() -> None:
    harness = WindowHarness(Sessions(10))
    harness.push("k", "a", 5)
    harness.advance_watermark(12)
    harness.push("k", "late", 1)  # alone it would be [1, 11)
    assert [late.value for late in harness.late] == ["late"]
    assert harness.open_windows("k") == [(5, 15)]


def test_records_inside_a_session_whose_trigger_has_finished_are_dropped() -> None:
    harness = WindowHarness(Sessions(10), AfterCount(2), allowed_lateness=100)
    harness.push_bundle([("k", 1, 0), ("k", 2, 5)])
    [pane] = harness.take()
    assert pane.is_last
    harness.push("k", 3, 7)
    assert [late.reason for late in harness.late] == ["the trigger of its window has finished"]
    assert harness.open_windows("k") == []
    harness.push("k", 4, 20)
    assert harness.open_windows("k") == [(20, 30)]
    harness.advance_watermark(10_000)
    assert harness.state_of("k") == {}


def test_keys_have_sessions_of_their_own() -> None:
    harness = WindowHarness(Sessions(10))
    harness.push_bundle([("a", 1, 0), ("b", 2, 5)])
    assert harness.open_windows("a") == [(0, 10)]
    assert harness.open_windows("b") == [(5, 15)]


def test_custom_windows_may_merge() -> None:
    """Sessions of at most 20: a longer one is cut by the user's own merge."""

    def merge(windows: Any) -> Any:
        groups: list[list[Window]] = []
        for window in windows:
            if (
                groups
                and window.start < groups[-1][-1].end
                and window.end - groups[-1][0].start <= 20
            ):
                groups[-1].append(window)
            else:
                groups.append([window])
        return groups

    harness = WindowHarness(Custom(lambda t: [(t, t + 10)], merge))
    harness.push_bundle([("k", t, t) for t in (0, 5, 9, 14)])
    harness.advance_watermark(100)
    assert [(tuple(pane.window), pane.values) for pane in harness.take()] == [
        ((0, 19), [0, 5, 9]),
        ((14, 24), [14]),
    ]


@quick
@given(
    timestamps=times,
    gap=st.integers(1, 20),
    cuts=st.lists(st.booleans(), min_size=20, max_size=20),
    back=st.booleans(),
)
def test_values_come_in_the_order_of_arrival_however_they_are_bundled(
    timestamps: list[int], gap: int, cuts: list[bool], back: bool
) -> None:
    """With aggregators that look at the order, of a user's own, too; and where retractions keep the
    records."""

    def emitted(bundles: list[list[tuple[str, int, int]]], aggregate: Any) -> list[Any]:
        harness = WindowHarness(
            Sessions(gap), aggregate=aggregate, takes_retractions=back, stored=True
        )
        for bundle in bundles:
            harness.push_bundle(bundle)
        harness.advance_watermark(1000)
        return [(pane.window, pane.result) for pane in harness.take()]

    records = [("k", index, t) for index, t in enumerate(timestamps)]
    bundles: list[list[tuple[str, int, int]]] = [[]]
    for record, cut in zip(records, cuts, strict=False):
        bundles[-1].append(record)
        if cut:
            bundles.append([])
    for aggregate in (None, Joined(), {"all": "collect", "n": "count"}):
        apart = emitted([[record] for record in records], aggregate)
        assert emitted(bundles, aggregate) == emitted([records], aggregate) == apart
        if aggregate is None:
            assert all(values == sorted(values) for _, values in apart)


class Joined(Aggregator[str]):
    """Text in the order in which it came."""

    def create(self) -> str:
        return ""

    def add(self, acc: str, value: Any, timestamp: int) -> str:
        return f"{acc},{value}"

    def merge(self, acc: str, other: str) -> str:
        return acc + other


def test_a_session_stored_without_the_order_of_arrival_comes_first() -> None:
    harness = WindowHarness(Sessions(10))
    state = harness._state("k")
    state["open"] = [3, [[20, 30, 1, False], [0, 10, 2, False]]]
    state[1] = [["b"], 0, 0, 1, 1, 0, 0, None, 29, None, None, [], []]
    state[2] = [["a"], 0, 0, 1, 1, 0, 0, None, 9, None, None, [], []]
    harness.push_bundle([("k", "c", 2), ("k", "d", 11)])
    harness.push("k", "e", 15)
    harness._timers[Domain.EVENT].set("k", "2", 9)
    harness.advance_watermark(100)
    [pane] = harness.take()
    assert pane.values[2:] == ["c", "d", "e"]
    assert sorted(pane.values[:2]) == ["a", "b"]
