"""Former defects of times to live and timers, put back: each is noticed by a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millwheel import Computation, ListState, MapState, ValueState
from tests.search.mutations import state as mistakes
from tests.unit.engine.workers.operators import test_call_order, test_callbacks
from tests.unit.engine.workers.state.test_keyed_state import Bench

SECOND = 1_000_000


class Brief(Computation):
    number = ValueState(int, default=0, ttl="10s")
    items = ListState(int, ttl="10s")
    ages = MapState(int, ttl="10s")


def one_bundle() -> Any:
    bench = Bench(Brief)
    bench.at("k", 0).number.set(1)
    assert bench.at("k", 600 * SECOND).number.get() == 0


def a_look_and_one_out_of_order() -> Any:
    bench = Bench(Brief)
    bench.at("k", 0).ages["x"] = 1
    assert "x" not in bench.at("k", 600 * SECOND).ages
    assert "x" in bench.at("k", 5 * SECOND).ages


def a_busy_key() -> Any:
    bench = Bench(Brief)
    for second in range(100):
        bench.pass_by(second * SECOND)
        bench.at("k", second * SECOND).ages[second] = second
        bench.commit()
    assert len(bench.store.data) < 20


def an_item_out_of_order() -> Any:
    bench = Bench(Brief)
    bench.at("k", 100 * SECOND).items.append(1)
    bench.at("k", 92 * SECOND).items.append(2)
    assert list(bench.at("k", 104 * SECOND).items) == [1, 2]


def a_timer_that_is_moved() -> Any:
    test_callbacks.test_a_record_moves_or_cancels_a_wall_clock_timer_that_is_due(False)


def timers_in_a_chain() -> Any:
    test_call_order.test_timers_that_timers_set_come_before_the_records_however_far_the_watermark_jumps(
        False, False
    )


def many_records_that_wait() -> Any:
    test_call_order.test_records_that_wait_are_no_timers_of_the_user()


NOTICED_BY: dict[Callable[[], Any], Callable[[], Any]] = {
    mistakes.what_was_written_in_a_bundle_does_not_expire_in_it: one_bundle,
    mistakes.what_is_over_is_removed_by_a_look: a_look_and_one_out_of_order,
    mistakes.each_write_moves_the_timer_of_a_removal: a_busy_key,
    mistakes.a_list_is_as_old_as_its_last_item: an_item_out_of_order,
    mistakes.wall_clock_timers_leave_their_queue_before_the_records: a_timer_that_is_moved,
    mistakes.timers_that_timers_set_wait_for_the_next_step: timers_in_a_chain,
    mistakes.records_that_wait_count_as_timers: many_records_that_wait,
}


@pytest.mark.parametrize("mistake", NOTICED_BY, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_noticed(mistake: Callable[[], Any]) -> None:
    NOTICED_BY[mistake]()
    with mistake(), pytest.raises(AssertionError):
        NOTICED_BY[mistake]()
