from __future__ import annotations

from millwheel.core.windows.calls import Call, Taken
from millwheel.core.windows.contract import Effects, Times
from millwheel.core.windows.triggers import Moment
from millwheel.core.windows.windows import Window


def test_the_records_of_a_window_are_parallel_columns_in_order_of_arrival() -> None:
    taken = Taken()
    taken.rows += [(2, 20, "b", {"v": 2}), (1, 10, "a", {"v": 1})]
    assert (taken.prepared, taken.timestamps) == (["b", "a"], [20, 10])
    assert Taken().rows == []


def test_a_trigger_sees_the_clocks_of_the_call_and_its_window() -> None:
    call = Call({}, "k", Times(5, 7, {0.9: 6}), Effects())
    assert call.moment(Window(0, 10)) == Moment(Window(0, 10), 5, 7, {0.9: 6})
