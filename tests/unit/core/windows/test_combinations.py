"""Triggers made of triggers."""

from __future__ import annotations

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
    AfterWatermark,
    Never,
)
from tests.unit.core.windows.test_triggers import AFTER, BEFORE


def test_a_sequence_is_where_its_first_unfinished_part_is() -> None:
    trigger = AfterEach(AfterCount(1), AfterCount(5), Repeat(AfterCount(2)))
    assert trigger.merge([[1, 2], [1, 1]], BEFORE) == [1, 3]
    # a count that was reached anywhere is reached
    assert trigger.merge([[0, 0], [1, 2]], BEFORE) == [1, 2]
    assert trigger.merge([[0, 0], [0, 0]], BEFORE) == [0, 0]
    assert AfterEach(AfterCount(1)).merge([None, None], BEFORE) is None


def test_a_sequence_goes_back_to_waiting_for_the_watermark() -> None:
    trigger = AfterEach(OrFinally(Repeat(AfterCount(2)), AfterWatermark()), Repeat(AfterCount(1)))
    waiting = trigger.start()
    ended = trigger.fire(waiting, AFTER)
    assert ended == [1, 0]
    assert trigger.merge([ended, waiting], BEFORE)[0] == 0
    assert trigger.merge([ended, ended], AFTER)[0] == 1


def test_combinations_finish_as_their_parts_do() -> None:
    once = AfterCount(1)
    assert AfterAny(once, Never()).fire([1, 0], BEFORE) is None
    assert AfterAll(once, Repeat(once)).fire([1, 1], BEFORE) == [None, 0]
    assert AfterAll(once, once).fire([1, 1], BEFORE) is None
    assert Repeat(once).fire(1, BEFORE) == 0
    assert Once(Repeat(once)).fire(1, BEFORE) is None


def test_what_a_trigger_needs_shows_through_combinations() -> None:
    nested = Repeat(AfterAny(AfterBytes(5), AfterWatermark(early=AfterPercentileWatermark(0.5))))
    assert nested.needs_bytes
    assert nested.on_time
    assert nested.shares() == (0.5,)
    assert not Repeat(AfterCount(3)).on_time


def test_a_trigger_that_ends_on_time_has_finished_as_it_fires_behind_the_end() -> None:
    early = AfterWatermark(early=AfterCount(2))
    ending = [
        early,
        AfterPercentileWatermark(0.9),
        AfterAny(Repeat(AfterCount(2)), early),
        AfterAll(early, AfterWatermark()),
        OrFinally(Repeat(AfterCount(1)), early),
        Once(early),
    ]
    for trigger in ending:
        state = trigger.add(trigger.start(), 1, 0, BEFORE)
        assert trigger.ends_on_time
        assert trigger.ready(state, AFTER)
        assert trigger.fire(state, AFTER) is None
    late = AfterWatermark(late=AfterCount(1))
    staying = [late, AfterAny(AfterCount(9), late), AfterAll(late, early), Repeat(early), Never()]
    assert not any(trigger.ends_on_time for trigger in staying)
