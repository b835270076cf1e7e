"""Batches of a sink: committed before they are published, by the loop or by a thread, and held
until they are visible."""

from __future__ import annotations

import pytest

from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.engine.workers.sinks.sink import SinkOperator, SinkShard
from millwheel.errors import CorruptionError, UnavailableError
from tests.fakes.plain_storage import SimStore
from tests.unit.engine.workers.sinks.sink_bench import Bench, Recording


def test_a_sink_that_shows_at_once_waits_for_no_commit_and_keeps_no_committable() -> None:
    bench = Bench(aside=True, at_once=True)
    bench.bundle(1, 2)
    assert bench.writer.published == [b"0:1,2"]
    assert (bench.asked, bench.committables(), bench.operator.hold(0).at) == ([], 0, MAX_TIME)


def test_what_cannot_be_shown_at_once_is_shown_later_and_so_is_what_follows_it() -> None:
    bench = Bench(aside=False, at_once=True)
    bench.writer.fail = UnavailableError("a full disk")
    bench.bundle(1)
    bench.writer.fail = None
    bench.bundle(2)
    assert (bench.writer.published, bench.committables()) == ([], 2)
    bench.durable(2)
    assert bench.writer.published == [b"0:1", b"1:2"]


def test_the_loop_publishes_once_a_commit_is_durable() -> None:
    bench = Bench(aside=False)
    bench.bundle(1, 2)
    assert bench.writer.published == []
    assert bench.operator.hold(0).at == 10
    bench.durable(1)
    assert bench.writer.published == [b"0:1,2"]
    assert bench.operator.hold(0).at == MAX_TIME
    bench.bundle()
    assert bench.committables() == 0


def test_a_batch_waits_for_its_own_commit() -> None:
    """The one before it may be durable, and the worker may die before the next group is."""
    bench = Bench(aside=False)
    bench.bundle(1)
    bench.bundle(2)
    bench.durable(1)
    assert bench.writer.published == [b"0:1"]
    bench.durable(2)
    assert bench.writer.published == [b"0:1", b"1:2"]


def test_a_thread_publishes_while_the_loop_goes_on() -> None:
    bench = Bench(aside=True)
    bench.bundle(1)
    bench.durable(1)
    bench.bundle(2)
    assert (len(bench.asked), bench.writer.published) == (1, [])
    assert bench.operator.hold(0).at == 10
    bench.asked[0].carried_out().report(5)
    assert bench.writer.published == [b"0:1"]
    assert bench.operator.hold(0).at == 20
    bench.durable(2)
    bench.bundle()
    assert bench.committables() == 1


def test_no_more_than_two_batches_are_on_their_way() -> None:
    bench = Bench(aside=True)
    bench.bundle(1)
    bench.bundle(2)
    assert bench.operator.intake(5, 0, 0) == 0
    bench.durable(1)
    bench.asked[0].carried_out().report(0)
    assert bench.operator.intake(5, 0, 0) > 0


def test_answers_may_come_in_any_order_and_committables_go_in_theirs() -> None:
    bench = Bench(aside=True)
    bench.bundle(1)
    bench.bundle(2)
    bench.durable(2)
    bench.asked[1].carried_out().report(0)
    assert bench.operator.hold(0).at == 10
    bench.asked[0].carried_out().report(0)
    assert bench.operator.hold(0).at == MAX_TIME
    bench.bundle()
    assert bench.committables() == 0


@pytest.mark.parametrize("aside", [False, True])
def test_what_cannot_be_published_now_is_tried_again(aside: bool) -> None:
    bench = Bench(aside)
    bench.writer.fail = UnavailableError("full")
    bench.bundle(1)
    bench.durable(1)
    for publication in bench.asked:
        publication.carried_out().report(0)
    bench.writer.fail = None
    wake = bench.operator.wakes_at(0)
    assert 0 < wake < MAX_TIME
    bench.bundle(now_us=wake)
    for publication in bench.asked[1:]:
        publication.carried_out().report(wake)
    assert bench.writer.published == [b"0:1"]
    assert bench.operator.hold(0).at == MAX_TIME


@pytest.mark.parametrize("aside", [False, True])
def test_damage_ends_the_worker(aside: bool) -> None:
    bench = Bench(aside)
    bench.writer.fail = CorruptionError("somebody else wrote it")
    bench.bundle(1)
    ends = (lambda: bench.asked[0].carried_out().report(0)) if aside else (lambda: bench.durable(1))
    if aside:
        bench.durable(1)
    with pytest.raises(CorruptionError):
        ends()


def test_records_wait_for_their_batch_to_fill_up_but_hardly_once_the_sources_have_ended() -> None:
    operator = SinkOperator(
        Recording(),
        SinkShard("sink.out-0", 1, SimStore({})),
        lambda stream, values: values,
        10**6,
        10,
    )
    assert operator.intake(5, 1_000, 0) == 0
    assert operator.wakes_at(1_000) == MAX_TIME, "a question starts no clock"
    operator.records_wait(1_000)
    assert operator.wakes_at(1_000) == 1_001_000
    assert operator.intake(10, 1_000, 0) == 10
    operator.sources_ended()
    assert operator.wakes_at(1_000) == 21_000
    assert operator.intake(5, 21_000, 0) == 10


def test_a_writer_that_needs_order_gets_the_next_batch_once_the_one_before_is_visible() -> None:
    bench = Bench(aside=True, in_order=True)
    bench.bundle(1)
    bench.bundle(2)
    bench.durable(2)
    assert [each.number for each in bench.asked] == [0]
    bench.writer.fail = UnavailableError("away")
    bench.asked.pop().carried_out().report(5)
    bench.writer.fail = None
    bench.bundle(now_us=200_000)
    assert [each.number for each in bench.asked] == [0]
    bench.asked.pop().carried_out().report(300_000)
    assert [each.number for each in bench.asked] == [1]
    bench.asked.pop().carried_out().report(300_000)
    assert bench.writer.published == [b"0:1", b"1:2"]


def test_a_commit_does_not_hurry_a_batch_that_failed() -> None:
    bench = Bench(aside=True, in_order=True)
    bench.bundle(1)
    bench.durable(1)
    bench.writer.fail = UnavailableError("away")
    bench.asked.pop().carried_out().report(1_000)
    bench.bundle(2, now_us=2_000)
    bench.durable(2, 2_000)
    assert bench.asked == []
    wake = bench.operator.wakes_at(2_000)
    assert wake == 101_000
    bench.bundle(now_us=wake)
    assert [each.number for each in bench.asked] == [0]


def test_committed_batches_of_a_former_owner_are_published_by_the_thread_in_their_order() -> None:
    former = Bench(aside=True, in_order=True)
    former.bundle(1)
    former.bundle(2)
    bench = Bench(aside=True, in_order=True, store=former.store)
    assert bench.writer.published == []
    assert bench.operator.hold(0).at == MIN_TIME
    for _ in range(2):
        bench.asked.pop().carried_out().report(0)
    assert bench.writer.published == [b"0:1", b"1:2"]
    assert bench.operator.hold(0).at == MAX_TIME


@pytest.mark.parametrize("aside", [False, True])
def test_nothing_is_swept_before_it_is_published(aside: bool) -> None:
    """Nor is a batch of the new owner published before that: a sink that keeps the latest is fenced
    by the sweep."""
    former = Bench(aside=True)
    former.bundle(1)
    former.bundle(2)
    writer = Recording()
    writer.sweep = lambda committables: writer.published.append(b"swept")  # type: ignore[method-assign]
    writer.fail = UnavailableError("a full disk")
    bench = Bench(aside, store=former.store, writer=writer)
    bench.answers()
    writer.fail = None
    bench.bundle(3)
    bench.durable(3, now_us=100_000)
    while bench.asked:
        assert b"swept" not in writer.published
        bench.answers()
    bench.bundle(4, now_us=200_000)
    bench.durable(4, now_us=200_000)
    bench.answers()
    assert writer.published[:3] == [b"0:1", b"1:2", b"swept"]
    assert len(writer.published) > 3
    assert bench.operator.hold(0).at == MAX_TIME


def test_the_hold_of_a_target_that_is_away_names_its_error_until_it_is_back() -> None:
    bench = Bench(aside=False)
    bench.writer.fail = UnavailableError("connection refused")
    bench.bundle(1)
    told = bench.operator.news.changes
    bench.durable(1)
    assert bench.operator.hold(0).holder == "sink batch 0, not yet published: connection refused"
    # A report goes out, although the watermark has not moved.
    assert bench.operator.news.changes != told
    bench.writer.fail = None
    bench.bundle(2, now_us=10**9)
    bench.durable(2)
    assert bench.operator.hold(0).holder == ""
