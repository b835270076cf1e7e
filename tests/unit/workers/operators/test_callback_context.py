from __future__ import annotations

from typing import Any

import pytest

from millwheel.api import Computation
from millwheel.core.model.limits import Limits
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.errors import RecordError
from millwheel.workers.bundle.bundle import Bundle
from millwheel.workers.operators.callback_context import CallbackContext
from millwheel.workers.state.keyed_state import KeyedState
from millwheel.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore


def context(limits: Limits = Limits(), identified: bool = False) -> tuple[CallbackContext, Bundle]:
    overlay = Overlay(SimStore({}))
    made = CallbackContext(frozenset({"out"}), KeyedState(Computation(), overlay, 10, 1000), limits, identified)
    bundle = Bundle(1, 500, 100, [], overlay, {domain: TimerQueue(domain) for domain in Domain})
    made.begin(bundle)
    made.point("ann", 120)
    return made, bundle


def test_a_production_has_the_key_and_time_of_its_cause_unless_it_says_otherwise() -> None:
    made, bundle = context()
    made.produce("out", {"n": 1})
    made.produce("out", {"n": 2}, timestamp=130, key="bob")
    out = bundle.outputs.streams["out"]
    assert (out.keys, out.timestamps, out.ids) == (["ann", "bob"], [120, 130], [b"", b""])


def test_nothing_is_produced_before_its_cause_or_to_no_output() -> None:
    made, _ = context()
    with pytest.raises(RecordError, match="lies 1 µs before the record"):
        made.produce("out", {}, timestamp=119)
    with pytest.raises(RecordError, match="'elsewhere' is no output of this computation; its outputs: out"):
        made.produce("elsewhere", {})


def test_ids_name_the_cause_and_the_number_of_the_production() -> None:
    def ids() -> list[bytes]:
        made, bundle = context(identified=True)
        made.point("ann", 120, ("up", 7))  # type: ignore[arg-type]
        made.produce("out", 1)
        made.produce("out", 1)
        return bundle.outputs.streams["out"].ids

    assert ids() == ids()
    assert len(set(ids())) == 2


def test_a_timer_for_a_time_that_has_passed_asks_to_be_settled() -> None:
    made, _ = context()
    made.set_timer("later", 100)
    assert not made.passed
    made.set_timer("clock", 1, Domain.PROCESSING)
    assert not made.passed
    made.set_timer("past", 99)
    assert made.passed


def test_a_key_may_have_so_many_timers_and_may_move_them() -> None:
    made, bundle = context(Limits(timers=2))
    made.set_timer("a", 200)
    made.set_timer("b", 200)
    made.set_timer("a", 300)
    with pytest.raises(RecordError, match="2 timers of this key wait already"):
        made.set_timer("c", 200)
    made.cancel_timer("b")
    made.set_timer("c", 200)
    assert len(bundle.timers[Domain.EVENT]) == 2


@pytest.mark.parametrize("name", ["records_in", "late", "two words", ""])
def test_a_counter_of_the_user_has_a_name_of_its_own(name: Any) -> None:
    made, bundle = context()
    made.count("retries", 3)
    assert bundle.outputs.counted == [("retries", 3)]
    with pytest.raises(RecordError, match="cannot name a counter"):
        made.count(name)
