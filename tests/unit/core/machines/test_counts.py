"""Count windows: every n records of a key, in the order in which they arrive, however they are
bundled."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.aggregation import Collected
from millwheel.core.machines.counts import SLOT, CountMachine
from millwheel.core.model.records import Domain
from millwheel.core.model.times import LAST_TIME, MAX_TIME
from millwheel.core.windows.calls import Group
from millwheel.core.windows.contract import Effects, Times, Windowing
from millwheel.core.windows.panes import OutputTime
from millwheel.core.windows.windows import Count, Window
from millwheel.errors import InvariantError


def machine(count: int, **more: Any) -> CountMachine:
    return CountMachine(Windowing(Count(count), **more), Collected(), Count(count))


@given(st.lists(st.integers(0, 99), max_size=20), st.integers(1, 5), st.data())
def test_every_n_records_are_a_pane_and_the_rest_comes_with_the_end(
    times: list[int], n: int, data: Any
) -> None:
    made, state, effects = machine(n), dict[Any, Any](), Effects()
    left = list(enumerate(times))
    while left:
        size = data.draw(st.integers(1, len(left)))
        rows, left = left[:size], left[size:]
        made.on_records(state, "k", rows, Times(0, 0), effects)
        state = deepcopy(state)
    made.on_timer(state, "k", SLOT, Domain.EVENT, LAST_TIME, Times(MAX_TIME, 0), effects)
    whole = [list(range(first, min(first + n, len(times)))) for first in range(0, len(times), n)]
    assert [pane.result for pane in effects.panes] == whole
    assert state == {}, "nothing is left behind"
    for pane in effects.panes:
        stamps = [times[number] for number in pane.result]
        assert (pane.window.start, pane.window.end) == (min(stamps), max(stamps) + 1)


@pytest.mark.parametrize(("watermark", "at"), [(0, 7), (50, 50), (MAX_TIME, LAST_TIME)])
def test_a_pane_is_not_behind_the_watermark_that_passed_its_records(
    watermark: int, at: int
) -> None:
    effects = Effects()
    machine(2).on_records({}, "k", [("a", 5), ("b", 7)], Times(watermark, 0), effects)
    assert [pane.timestamp for pane in effects.panes] == [at]


def test_with_the_earliest_time_an_open_window_holds_the_watermark_there_until_it_is_full() -> None:
    made, state, effects = machine(2, output_time=OutputTime.EARLIEST), dict[Any, Any](), Effects()
    made.on_records(state, "k", [("a", 5)], Times(0, 0), effects)
    made.on_records(state, "k", [("b", 3)], Times(4, 0), effects)
    assert [hold.at for hold in effects.holds] == [5, None], (
        "3 is behind the watermark and can hold nothing"
    )
    assert [pane.timestamp for pane in effects.panes] == [5]


@given(st.lists(st.lists(st.integers(0, 99), max_size=12), max_size=4), st.integers(1, 5))
def test_groups_make_the_panes_that_their_records_make(bundles: list[list[int]], n: int) -> None:
    """State, timers and panes, after every bundle."""
    made, by_record, by_group = machine(n), dict[Any, Any](), dict[Any, Any]()
    for number, stamps in enumerate(bundles):
        times, one, other = Times(number * 20, 0), Effects(), Effects()
        made.on_records(by_record, "k", [(at, at) for at in stamps], times, one)
        groups, left = [], stamps
        taken = n - made.filled(by_group)
        while left:
            part, left, taken = left[:taken], left[taken:], n
            groups.append(Group(Window(min(part), max(part) + 1), [*part], len(part), None, None))
        if groups:
            made.on_groups(by_group, "k", groups, times, other)
        assert one == other
        assert by_record == by_group


def test_a_group_that_exceeds_its_window_is_refused() -> None:
    with pytest.raises(InvariantError, match="a count window of 2 got 3 records"):
        machine(2).on_groups(
            {}, "k", [Group(Window(0, 9), [1, 2, 3], 3, None, None)], Times(0, 0), Effects()
        )
