"""Trigger state: what merging does to it, when it asks to be woken, and that it is plain data.

When triggers fire over time is in tests/transcripts/triggers.yaml."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.combinations import (
    AfterAll,
    AfterAny,
    AfterEach,
    Once,
    OrFinally,
    Repeat,
)
from millwheel.core.windows.triggers import (
    AfterBytes,
    AfterCount,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    Moment,
    Never,
    Trigger,
)
from millwheel.core.windows.windows import Window

WINDOW = Window(0, 100)
BEFORE = Moment(WINDOW, watermark=50, now=1000)
AFTER = Moment(WINDOW, watermark=100, now=1000)

ALL: list[Trigger] = [
    Default(),
    Never(),
    AfterCount(2),
    AfterBytes(10),
    AfterProcessingTime("1s"),
    AfterPercentileWatermark(0.9),
    AfterWatermark(early=AfterCount(2), late=AfterProcessingTime("1s")),
    AfterAny(AfterCount(2), AfterProcessingTime(5)),
    AfterAll(AfterCount(2), AfterProcessingTime(5)),
    AfterEach(AfterCount(1), Repeat(AfterCount(2))),
    OrFinally(Repeat(AfterCount(2)), AfterWatermark()),
    Repeat(AfterAny(AfterCount(2), AfterBytes(3))),
    Once(AfterCount(2)),
]


@pytest.mark.parametrize("trigger", ALL, ids=repr)
def test_state_is_plain_data_and_triggers_are_values(trigger: Trigger) -> None:
    state = trigger.add(trigger.start(), 1, 5, BEFORE)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(state)) == state
    assert hash(trigger) == hash(trigger)
    assert trigger.merge([state], BEFORE) == state
    assert isinstance(trigger.ready(state, BEFORE), bool)
    with pytest.raises((AttributeError, TypeError)):
        trigger.something = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("trigger", ALL, ids=repr)
def test_a_fresh_trigger_is_not_ready_before_the_end(trigger: Trigger) -> None:
    assert not trigger.ready(trigger.start(), BEFORE)


def test_counts_and_bytes_add_up_when_windows_merge() -> None:
    assert AfterCount(5).merge([2, 1], BEFORE) == 3
    assert AfterBytes(5).merge([2, 1], BEFORE) == 3
    assert AfterCount(5).merge([2, None], BEFORE) is None


def test_the_earliest_deadline_counts_when_windows_merge() -> None:
    assert AfterProcessingTime(5).merge([1005, 1003], BEFORE) == 1003
    assert AfterProcessingTime(5).merge([1005, None], BEFORE) is None


def test_what_had_fired_on_time_waits_again_if_the_merged_end_lies_ahead() -> None:
    trigger = AfterWatermark(early=AfterCount(2), late=AfterCount(3))
    assert trigger.merge([[True, 1], [True, 1]], AFTER) == [True, 2]
    assert trigger.merge([[True, 1], [True, 1]], BEFORE) == [False, 0]
    assert trigger.merge([[True, 1], [False, 1]], AFTER) == [False, 1]
    assert AfterPercentileWatermark(0.9).merge([None], AFTER) is None
    assert AfterPercentileWatermark(0.9).merge([None], BEFORE) == 0


def test_it_wakes_at_the_first_deadline_that_is_still_ahead() -> None:
    both = AfterAll(AfterProcessingTime(5), AfterProcessingTime(10))
    state = both.add(both.start(), 1, 0, BEFORE)
    assert both.wake(state, 1000) == 1005
    assert both.wake(state, 1005) == 1010
    assert both.wake(state, 1010) == MAX_TIME
    assert AfterEach(AfterProcessingTime(5)).wake([0, 1005], 1000) == 1005
    assert Default().wake(0, 0) == MAX_TIME


def test_a_deadline_may_be_put_off_to_a_full_minute() -> None:
    trigger = AfterProcessingTime("5s", align="1m")
    moment = Moment(WINDOW, 0, 54_000_000)
    assert trigger.add(trigger.start(), 1, 0, moment) == 60_000_000
    assert trigger.add(trigger.start(), 1, 0, Moment(WINDOW, 0, 56_000_000)) == 120_000_000
    assert trigger.add(trigger.start(), 1, 0, Moment(WINDOW, 0, 55_000_000)) == 60_000_000


class EveryThird(Trigger):
    """A trigger of the user's own, the shortest that works."""

    def add(self, state: Any, records: int, size: int, moment: Moment) -> Any:
        return state + records

    def ready(self, state: Any, moment: Moment) -> bool:
        return bool(state >= 3)

    def fire(self, state: Any, moment: Moment) -> Any:
        return 0


def test_a_trigger_of_ones_own_needs_little() -> None:
    from millwheel.core.windows.windows import Sessions, Tumbling
    from millwheel.testing import WindowHarness

    harness = WindowHarness(Tumbling(100), EveryThird())
    harness.push_bundle([("k", i, i) for i in range(7)])
    harness.push("k", 7, 7)
    assert [pane.values for pane in harness.take()] == [list(range(7))]
    sessions = WindowHarness(Sessions(10), EveryThird())
    sessions.push("k", 1, 1)
    with pytest.raises(
        TypeError, match=r"EveryThird must define merge\(self, states, moment\) for sessions"
    ):
        sessions.push("k", 2, 2)
    with pytest.raises(TypeError, match="Trigger must define ready"):
        Trigger().ready(0, BEFORE)


@pytest.mark.parametrize(
    ("make", "fix"),
    [
        (lambda: AfterCount(0), "at least 1"),
        (lambda: AfterCount(2.5), "whole number"),  # type: ignore[arg-type]
        (lambda: AfterBytes(-1), "whole number of bytes"),
        (lambda: AfterProcessingTime(-1), "cannot be negative"),
        (lambda: AfterProcessingTime("soon"), "write a number and a unit"),
        (lambda: AfterPercentileWatermark(95), "between 0 and 1"),
        (lambda: Repeat("after_count"), "made of triggers"),  # type: ignore[arg-type]
        (lambda: AfterAny(), "at least 1 trigger"),
        (lambda: AfterEach(AfterCount(1), 5), "not of 5"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(make: Any, fix: str) -> None:
    with pytest.raises(ValueError, match=fix):
        make()
