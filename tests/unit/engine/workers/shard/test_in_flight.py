"""Commits between their bundle and the disk."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.formats.codec import Commit
from millwheel.core.formats.store_layout import PENDING, Meta, number8
from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.delivery.outbox import OutputChunk
from millwheel.engine.workers.shard.in_flight import InFlight, PendingCommit, Step
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError
from tests.fakes.plain_storage import SimStore

STRAGGLER = 1_000


class Shard:
    def __init__(self) -> None:
        self.store = SimStore({})


def pending(number: int, **more: Any) -> PendingCommit:
    commit = Commit("s", 1, number, [(b"k", b"%d" % number)], [])
    return PendingCommit(
        cast("Any", Shard()), number, commit, [], more.pop("chunk", None), Hold(), **more
    )


def weak(number: int, since: int = 0) -> PendingCommit:
    chunk = OutputChunk(
        number, "c", [("t", Batch("s", [], [1], ["a"], [1]))], 1, stored=False, stored_form=b"form"
    )
    return pending(number, chunk=chunk, weak=True, since_us=since, write_by_us=since + 5)


def in_flight(*commits: PendingCommit, meta: Meta | None = None) -> InFlight:
    flight = InFlight("s", meta or Meta(counters={}), STRAGGLER)
    for each in commits:
        flight.enlist(each)
    return flight


def numbers(flight: InFlight, now: int = 0) -> list[int]:
    return [each.number for each, _ in flight.submittable(now)]


def test_commits_are_submitted_once_in_the_order_in_which_they_were_made() -> None:
    flight = in_flight(pending(1), pending(2))
    assert numbers(flight) == [1, 2]
    assert numbers(flight) == []
    assert [each.number for each in flight.pending] == [1, 2], "the journal has not answered"


def test_commits_that_become_durable_out_of_order_are_a_mistake() -> None:
    first, second = pending(1), pending(2)
    flight = in_flight(first, second)
    with pytest.raises(InvariantError, match="out of order"):
        flight.settle(second)
    with pytest.raises(InvariantError, match="never got commit 1"):
        flight.settle(first)
    numbers(flight)
    flight.settle(first)
    flight.settle(second)
    assert (flight.durable, len(flight.pending)) == (2, 0)


def test_an_unapplied_production_keeps_later_ones_from_the_journal_until_it_is_late() -> None:
    straggler = weak(1, since=100)
    flight = in_flight(straggler, pending(2))
    assert numbers(flight, 100 + STRAGGLER - 1) == []
    assert flight.submits_at() == 100 + STRAGGLER
    assert numbers(flight, 100 + STRAGGLER) == [1, 2]
    assert straggler.chunk is not None
    assert straggler.chunk.stored, "a recovery must send it again"


def test_somebody_who_waits_makes_all_before_it_due_at_once() -> None:
    flight = in_flight(pending(1, write_by_us=500))
    assert flight.submits_at() == 500
    flight.enlist(pending(2))
    assert flight.submits_at() == 0
    numbers(flight)
    assert flight.submits_at() == MAX_TIME


def test_a_commit_without_changes_has_no_entry() -> None:
    nothing = PendingCommit(cast("Any", Shard()), 0, None, [], None, Hold())
    [(same, entry)] = in_flight(nothing).submittable(0)
    assert same is nothing
    assert entry == b""


@given(st.lists(st.integers(-100, 100)), st.integers(-100, 100))
def test_the_watermark_is_kept_by_the_lowest_of_what_is_not_durable(
    holds: list[int], at: int
) -> None:
    flight = InFlight("s", Meta(counters={}), STRAGGLER)
    for number, held in enumerate(holds, 1):
        one = pending(number, work_us=held)
        one.hold = Hold(held, "commit")
        flight.enlist(one)
    assert flight.lowest(Hold(at, "own")).at == min([at, *holds])
    assert flight.lowest_work(at) == min([at, *holds])


def test_the_durable_number_and_floor_never_fall() -> None:
    one, other = pending(5, floor=10), pending(4)
    flight = in_flight(one, meta=Meta(number=5, floor=90, counters={}))
    with pytest.raises(InvariantError, match="commit 4 was made after 5"):
        flight.enlist(other)
    numbers(flight)
    flight.settle(one)
    assert (flight.durable, flight.floor) == (5, 90)
    flight.enlist(other)
    numbers(flight)
    with pytest.raises(InvariantError, match="commit 4 became durable after 5"):
        flight.settle(other)
    assert flight.floor > MIN_TIME


def test_a_copy_of_the_store_holds_what_is_still_on_its_way() -> None:
    straggler = weak(1)
    in_flight(straggler).checkpoint_stragglers()
    assert [*cast("Any", straggler.shard).store.data.values()] == [b"form"]


def weak_commit() -> PendingCommit:
    chunk = OutputChunk(
        7, "c", [("t", Batch("s", [], [1], ["a"], [1]))], 1, stored=False, stored_form=b"form"
    )
    return PendingCommit(
        cast("Any", Shard()), 1, Commit("s", 1, 1, [], []), [], chunk, Hold(), weak=True
    )


def test_weak_productions_straggle_until_every_consumer_has_them() -> None:
    commit = weak_commit()
    assert commit.straggles
    assert commit.chunk is not None
    commit.chunk.finished = True
    assert not commit.straggles


def test_strong_productions_never_straggle() -> None:
    commit = weak_commit()
    commit.weak = False
    assert not commit.straggles


def test_stragglers_go_into_the_commit_and_into_the_store_once() -> None:
    """In one of them alone, a recovery or a snapshot would lack them."""
    commit = weak_commit()
    commit.checkpoint_chunk()
    commit.checkpoint_chunk()
    store_key = PENDING + number8(7)
    assert commit.commit is not None
    assert commit.commit.puts == [(store_key, b"form")]
    assert cast("Any", commit.shard).store.data == {store_key: b"form"}


def test_a_weak_commit_without_productions_is_a_mistake() -> None:
    commit = weak_commit()
    commit.chunk = None
    with pytest.raises(InvariantError):
        commit.checkpoint_chunk()


def chunk(at: int) -> OutputChunk:
    return OutputChunk(1, "c", [("t", Batch("s", [1], [at], ["a"], [1]))], at)


def step(hold: int, made: OutputChunk | None, *reads: OutputChunk) -> Step:
    queues = {domain: TimerQueue(domain) for domain in Domain}
    bundle = Bundle(1, 0, 0, [], Overlay(SimStore({})), queues)
    bundle.chunks += reads
    return Step(bundle, [], Hold(hold, "input"), 0, made, asks=False)


def test_a_step_that_waits_keeps_the_watermark_at_the_earliest_of_all_that_it_has_made() -> None:
    """Nothing of it is on its way yet, so nothing else holds it."""
    assert step(50, None).kept().at == 50
    assert step(50, chunk(40)).kept().at == 40
    assert step(50, chunk(60), chunk(30)).kept().at == 30
    assert step(MAX_TIME, chunk(60)).kept().at == 60
    assert "verdict" in step(50, None).kept().holder
