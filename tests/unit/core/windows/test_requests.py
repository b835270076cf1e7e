"""What a window asks of the runtime is asked once, and taken back."""

from __future__ import annotations

from typing import Any

from millwheel.core.model.records import Domain
from millwheel.core.windows.calls import Call, Taken
from millwheel.core.windows.contract import Effects, Times, Windowing
from millwheel.core.windows.requests import Requests
from millwheel.core.windows.state import PAST_ON_TIME, WindowState
from millwheel.core.windows.triggers import AfterProcessingTime, Moment
from millwheel.core.windows.windows import Tumbling, Window

WINDOW = Window(0, 10)


def renewed(
    requests: Requests, own: WindowState, watermark: int = 0, now: int = 0
) -> list[tuple[str, Any]]:
    effects = Effects()
    requests.renew(WINDOW, own, WINDOW, Call({}, "k", Times(watermark, now), effects))
    return [
        *((timer.domain.value, timer.at) for timer in effects.timers),
        *(("hold", h.at) for h in effects.holds),
    ]


def test_a_window_asks_for_its_end_once_and_then_for_its_collection() -> None:
    requests, own = Requests(Windowing(Tumbling(10), allowed_lateness=5)), WindowState(0, fresh=1)
    assert renewed(requests, own) == [("event", 9)]
    assert renewed(requests, own) == []
    own.timer_at_us = None
    own.flags = PAST_ON_TIME
    assert renewed(requests, own, watermark=10) == [("event", 14)]


def test_a_pane_that_is_not_emitted_holds_the_watermark_and_lets_go() -> None:
    requests, own = (
        Requests(Windowing(Tumbling(10))),
        WindowState(0, fresh=1, output_at_us=4, timer_at_us=9),
    )
    assert renewed(requests, own) == [("hold", 4)]
    assert renewed(requests, own) == []
    own.fresh = 0
    assert renewed(requests, own) == [("hold", None)]


def test_a_window_past_its_end_with_something_to_say_holds_its_last_instant() -> None:
    requests, own = Requests(Windowing(Tumbling(10), allowed_lateness=9)), WindowState(0, fresh=1)
    assert ("hold", 9) in renewed(requests, own, watermark=12)


def test_a_trigger_by_the_clock_asks_for_its_moment_and_takes_it_back() -> None:
    trigger = AfterProcessingTime(5)
    requests, own = (
        Requests(Windowing(Tumbling(10), trigger)),
        WindowState(0, trigger.start(), fresh=1),
    )
    effects = Effects()
    call = Call({}, "k", Times(0, 100), effects)
    own.trigger = trigger.add(own.trigger, 1, 0, call.moment(WINDOW))
    asked = renewed(requests, own, now=100)
    assert [at for domain, at in asked if domain == "processing"] == [104], (
        "timers fire once the clock is past them"
    )
    requests.drop(WINDOW, own, call)
    assert [(timer.domain, timer.at) for timer in effects.timers] == [
        (Domain.EVENT, None),
        (Domain.PROCESSING, None),
    ]


def test_that_a_timer_fires_shows_that_its_time_has_passed() -> None:
    requests, own = Requests(Windowing(Tumbling(10))), WindowState(0, timer_at_us=9, clock_at_us=50)
    assert requests.clocks_of(own, "x", Domain.EVENT, 9, Times(3, 40)) == Times(10, 40)
    assert requests.clocks_of(own, "x", Domain.PROCESSING, 50, Times(3, 40)) == Times(3, 51)
    assert (own.timer_at_us, own.clock_at_us) == (None, None)


# calls.py


def test_the_records_of_a_window_are_parallel_columns_in_order_of_arrival() -> None:
    taken = Taken()
    taken.rows += [(2, 20, "b", {"v": 2}), (1, 10, "a", {"v": 1})]
    assert (taken.prepared, taken.timestamps) == (["b", "a"], [20, 10])
    assert Taken().rows == []


def test_a_trigger_sees_the_clocks_of_the_call_and_its_window() -> None:
    call = Call({}, "k", Times(5, 7, {0.9: 6}), Effects())
    assert call.moment(Window(0, 10)) == Moment(Window(0, 10), 5, 7, {0.9: 6})
