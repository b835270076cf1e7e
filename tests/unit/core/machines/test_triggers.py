"""One window with a trigger: its life from the first record to its last pane."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.aggregation import Collected
from millwheel.core.machines.aligned_windows import AlignedMachine
from millwheel.core.windows.contract import Effects, LatePolicy, Times, Windowing
from millwheel.core.windows.panes import Accumulation, Timing
from millwheel.core.windows.triggers import AfterCount, AfterWatermark
from millwheel.core.windows.windows import Tumbling


def told(
    windowing: Windowing, *bundles: tuple[int, list[int]]
) -> list[tuple[str, list[int], bool]]:
    """What a window of ten says of (watermark, timestamps) bundles: (timing, values, is last)."""
    machine, state, effects = AlignedMachine(windowing, Collected()), dict[Any, Any](), Effects()
    for watermark, stamps in bundles:
        machine.on_records(state, "k", [(at, at) for at in stamps], Times(watermark, 0), effects)
        for timer in list(effects.timers):
            if timer.at is not None and timer.at < watermark:
                machine.on_timer(
                    state, "k", timer.tag, timer.domain, timer.at, Times(watermark, 0), effects
                )
    return [(pane.timing.name, pane.result, pane.is_last) for pane in effects.panes]


def test_a_window_speaks_early_on_time_and_late_and_then_is_gone() -> None:
    windowing = Windowing(
        Tumbling(10), AfterWatermark(early=AfterCount(2), late=AfterCount(1)), allowed_lateness=5
    )
    found = told(windowing, (0, [1, 2]), (0, [3]), (10, []), (12, [4]), (30, []), (31, [5]))
    assert [timing for timing, *_ in found][:3] == [
        Timing.EARLY.name,
        Timing.ON_TIME.name,
        Timing.LATE.name,
    ]
    assert [values for _, values, _ in found][:3] == [[1, 2], [3], [4]]
    assert not any(5 in values for _, values, _ in found), "its window is final"


def test_accumulating_panes_repeat_what_was_said_and_discarding_ones_do_not() -> None:
    trigger = AfterWatermark(early=AfterCount(1))
    for accumulation, wanted in (
        (Accumulation.ACCUMULATING, [[1], [1, 2], [1, 2]]),
        (Accumulation.DISCARDING, [[1], [2]]),
    ):
        found = told(Windowing(Tumbling(10), trigger, accumulation), (0, [1]), (0, [2]), (10, []))
        assert [values for _, values, _ in found][: len(wanted)] == wanted


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_without_a_trigger_of_its_own_a_window_speaks_once_with_everything(
    stamps: list[int],
) -> None:
    found = told(Windowing(Tumbling(10)), *((0, [at]) for at in stamps), (10, []))
    assert found == [("ON_TIME", stamps, True)]


def test_a_late_record_is_fired_alone_where_that_is_asked_for() -> None:
    windowing = Windowing(Tumbling(10), late=LatePolicy.REFIRE)
    found = told(windowing, (0, [1]), (10, []), (20, [2]))
    assert [(timing, values) for timing, values, _ in found] == [("ON_TIME", [1]), ("LATE", [2])]
