"""One bundle: what is produced is taken back whole, timers fire once, and a dead letter never
fails."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.failures import CallKind, chained_counter
from millwheel.core.model.records import DeadLetter, Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.engine.workers.bundle.bundle import (
    RECORD,
    Bundle,
    Outputs,
    Produced,
    plain_letter,
    records_of,
)
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore


def bundle(watermark: int = 0, now: int = 0, **more: Any) -> Bundle:
    queues = {domain: TimerQueue(domain) for domain in Domain}
    return Bundle(1, now, watermark, [], Overlay(SimStore({})), queues, **more)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=8), st.integers(0, 8))
def test_what_is_taken_back_was_never_produced(rows: list[tuple[str, int]], kept: int) -> None:
    whole, cut = Outputs(), Outputs()
    for number, (stream, value) in enumerate(rows):
        if number == kept:
            mark = whole.mark()
        whole.produce(stream, "k", {"v": value}, number, b"id")
        whole.counted.append((stream, 1))
        if number < kept:
            cut.produce(stream, "k", {"v": value}, number, b"id")
            cut.counted.append((stream, 1))
    if kept < len(rows):
        whole.cut_to(mark)
    assert whole.count == cut.count
    assert whole.counted == cut.counted
    assert {name: each for name, each in whole.streams.items() if each.raws} == cut.streams


def test_a_value_that_is_changed_after_it_was_produced_was_sent_as_it_was() -> None:
    outputs, value = Outputs(), [1]
    outputs.produce("a", "k", value, 0)
    value.append(2)
    assert msgspec.msgpack.decode(outputs.streams["a"].raws[0]) == [1]
    assert outputs.streams["a"].decoded == [[1]]


def test_left_out_are_exactly_those_places() -> None:
    produced = Produced(*([0, 1, 2, 3] for _ in range(4)))
    produced.leave_out([1, 3])
    assert produced == Produced(*([0, 2] for _ in range(4)))


def test_event_timers_that_timers_set_for_a_passed_time_fire_too_and_clock_timers_wait() -> None:
    for domain, fired in ((Domain.EVENT, ["a", "b"]), (Domain.PROCESSING, ["a"])):
        one = bundle(watermark=10, now=10)
        queue = one.timers[domain]
        queue.set("k", "a", 1)
        tags = []
        for due in one.fires(domain):
            tags.append(due.tag)
            if due.tag == "a":
                queue.set("k", "b", 2)
        assert tags == fired
        assert [due.tag for due in one.due] == fired


def test_event_timers_take_no_room_from_those_of_the_clock() -> None:
    """Those that wait for a suspended record are due in each bundle, and a timer of the clock lets
    it go on."""
    one = bundle(watermark=10, now=10, most_timers=2)
    for number in range(3):
        one.timers[Domain.EVENT].set("k", f"e{number}", 1)
        one.timers[Domain.PROCESSING].set("k", f"p{number}", 1)
    assert [due.tag for due in one.fires(Domain.EVENT)] == ["e0", "e1"]
    assert [due.tag for due in one.fires(Domain.PROCESSING)] == ["p0", "p1"]


def test_a_clock_timer_that_another_one_cancels_does_not_fire() -> None:
    one = bundle(now=10)
    queue = one.timers[Domain.PROCESSING]
    for tag in "ab":
        queue.set("k", tag, 1)
    fired = []
    for due in one.fires(Domain.PROCESSING):
        fired.append(due.tag)
        queue.cancel("k", "b")
    assert fired == ["a"]


@pytest.mark.parametrize(("watermark", "floor", "passed"), [(5, 0, 5), (5, 7, 7), (MAX_TIME, 7, 7)])
def test_what_has_passed_is_at_least_the_floor_and_never_the_end_of_time(
    watermark: int, floor: int, passed: int
) -> None:
    assert bundle(watermark, floor=floor).passed == passed


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, 2**70, float("nan"), "\ud800", b"\xff", [[[]]] * 3]
)
def test_a_dead_letter_is_written_whatever_is_in_it(value: object) -> None:
    one = bundle()
    one.dead_letter(DeadLetter("p", "c", "s", "why", key="k", value=value, state={"v": value}), 5)
    [raw] = one.outputs.streams[DEAD_LETTERS].raws
    assert msgspec.msgpack.decode(raw)["reason"] == "why"
    assert one.counters["dead_letters"] == 1
    assert sum(one.failures.values()) == 1


def test_a_letter_about_a_record_that_was_one_before_has_its_history_once() -> None:
    one = bundle()
    one.remember("k", {"v": 1}, 5, ["earlier"])
    for _ in range(2):
        one.dead_letter(DeadLetter("p", "c", "s", "why", key="k", value={"v": 1}, timestamp=5), 5)
    letters = [msgspec.msgpack.decode(raw) for raw in one.outputs.streams[DEAD_LETTERS].raws]
    assert [letter["history"] for letter in letters] == [["earlier"], []]


def test_large_state_is_shown_by_its_beginning() -> None:
    letter = plain_letter(DeadLetter("p", "c", "s", "why", state={"v": "x" * (2 << 20)}))
    assert letter["state"]["size"] > 2 << 20
    assert len(letter["state"]["begins"]) <= 10_000


def test_what_a_chained_node_did_is_counted_under_its_names() -> None:
    whole, part, own = bundle(), bundle(), bundle()
    part.outputs.produce("made", "k", 1, 5)
    part.count("records_out", 2)
    part.try_(RECORD, 3)
    part.fail(DeadLetter("p", "step", "clicks", "bad"), RECORD)
    own.try_(RECORD, 4)
    whole.add(part, "step", "clicks")
    whole.add(own)
    assert whole.counters == {chained_counter("step", "records_out"): 2}
    assert whole.tried == {records_of("clicks"): 3, RECORD: 4}
    assert list(whole.failures) == [CallKind("step", records_of("clicks"))]
    assert (whole.outputs.count, whole.outputs.makers) == (1, {"made": "step"})
