"""Batches of a sink: committed before they are published, by the loop or by a thread, and held until they are
visible."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from millwheel.core.formats.store_layout import COMMITTABLE
from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.errors import CorruptionError, UnavailableError
from millwheel.sinks.base import BatchRefusedError, BatchSplitError, Refused, SinkBatch, SinkRecord, Writer
from millwheel.workers.bundle.bundle import Bundle
from millwheel.workers.delivery.inbox import Arrival
from millwheel.workers.sinks.pending import Publication
from millwheel.workers.sinks.sink import SinkOperator, SinkShard
from millwheel.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore


class Recording(Writer):
    """Keeps what is published; fails as often as it is told."""

    publishes_aside = True

    def __init__(self) -> None:
        self.published: list[bytes] = []
        self.fail: Exception | None = None

    def prepare(self, batch: SinkBatch) -> bytes:
        return f"{batch.number}:{','.join(str(record.value) for record in batch.records)}".encode()

    def publish(self, committable: bytes) -> None:
        if self.fail is not None:
            raise self.fail
        self.published.append(committable)

    def sweep(self, committables: list[bytes]) -> None: ...

    def close(self) -> None: ...


class Bench:
    """One sink shard. ``asked`` are publications that wait for their thread."""

    def __init__(
        self,
        aside: bool,
        at_once: bool = False,
        in_order: bool = False,
        store: SimStore | None = None,
        writer: Recording | None = None,
        refusal: tuple[bytes, bytes] | None = None,
    ) -> None:
        self.writer, self.store, self.number = writer or Recording(), store or SimStore({}), 0
        self.letters: list[tuple[str, int]] = []
        self.counters: Counter[str] = Counter()
        if refusal is not None:
            refuses(self, *refusal)
        self.writer.publishes_in_order = in_order
        self.asked: list[Publication] = []
        publish = self.asked.append if aside else None
        shard = SinkShard("sink.out-0", 1, self.store, publish, "pipeline", "out")
        self.operator = SinkOperator(self.writer, shard, lambda stream, values: values, 0, 10, at_once)

    def bundle(self, *values: int, now_us: int = 0) -> None:
        """A bundle with these records, if the operator wants any, and its commit."""
        wanted = self.operator.appetite(len(values), now_us, 0)
        batch = Batch("out", [], [value * 10 for value in values], ["k"] * len(values), list(values))
        arrivals = [Arrival("c", 1, 0, batch, None, 0)] if wanted and values else []
        self.number += 1
        overlay = Overlay(self.store)
        bundle = Bundle(self.number, now_us, 0, arrivals, overlay, {})
        self.operator.run(bundle)
        self.counters.update(bundle.counters)
        produced = bundle.outputs.streams.get("dead_letters")
        decoded = [msgspec.msgpack.decode(raw) for raw in produced.raws] if produced else []
        self.letters += [(letter["reason"], letter["value"]) for letter in decoded]
        self.store.apply(*overlay.take())

    def answers(self) -> None:
        """The threads carry out what they were asked for."""
        asked, self.asked[:] = list(self.asked), []
        for publication in asked:
            publication.carried_out().tell(5)

    def durable(self, number: int, now_us: int = 0) -> None:
        self.operator.durable(number, now_us)

    def committables(self) -> int:
        return len(list(self.store.scan(COMMITTABLE)))


def test_a_sink_that_shows_at_once_waits_for_no_commit_and_keeps_no_committable() -> None:
    bench = Bench(aside=True, at_once=True)
    bench.bundle(1, 2)
    assert bench.writer.published == [b"0:1,2"]
    assert (bench.asked, bench.committables(), bench.operator.hold(0).at) == ([], 0, MAX_TIME)


def test_what_cannot_be_shown_at_once_is_committed_and_shown_later_and_so_is_what_comes_after_it() -> None:
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
    bench.asked[0].carried_out().tell(5)
    assert bench.writer.published == [b"0:1"]
    assert bench.operator.hold(0).at == 20
    bench.durable(2)
    bench.bundle()
    assert bench.committables() == 1


def test_no_more_than_two_batches_are_on_their_way() -> None:
    bench = Bench(aside=True)
    bench.bundle(1)
    bench.bundle(2)
    assert bench.operator.appetite(5, 0, 0) == 0
    bench.durable(1)
    bench.asked[0].carried_out().tell(0)
    assert bench.operator.appetite(5, 0, 0) > 0


def test_answers_may_come_in_any_order_and_committables_go_in_theirs() -> None:
    bench = Bench(aside=True)
    bench.bundle(1)
    bench.bundle(2)
    bench.durable(2)
    bench.asked[1].carried_out().tell(0)
    assert bench.operator.hold(0).at == 10
    bench.asked[0].carried_out().tell(0)
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
        publication.carried_out().tell(0)
    bench.writer.fail = None
    wake = bench.operator.wakes_at(0)
    assert 0 < wake < MAX_TIME
    bench.bundle(now_us=wake)
    for publication in bench.asked[1:]:
        publication.carried_out().tell(wake)
    assert bench.writer.published == [b"0:1"]
    assert bench.operator.hold(0).at == MAX_TIME


@pytest.mark.parametrize("aside", [False, True])
def test_damage_ends_the_worker(aside: bool) -> None:
    bench = Bench(aside)
    bench.writer.fail = CorruptionError("somebody else wrote it")
    bench.bundle(1)
    ends = (lambda: bench.asked[0].carried_out().tell(0)) if aside else (lambda: bench.durable(1))
    if aside:
        bench.durable(1)
    with pytest.raises(CorruptionError):
        ends()


def test_records_wait_for_their_batch_to_fill_up_but_hardly_once_the_sources_have_ended() -> None:
    operator = SinkOperator(
        Recording(), SinkShard("sink.out-0", 1, SimStore({})), lambda stream, values: values, 10**6, 10
    )
    assert operator.appetite(5, 1_000, 0) == 0
    assert operator.wakes_at(1_000) == MAX_TIME, "a question starts no clock"
    operator.records_wait(1_000)
    assert operator.wakes_at(1_000) == 1_001_000
    assert operator.appetite(10, 1_000, 0) == 10
    operator.sources_ended()
    assert operator.wakes_at(1_000) == 21_000
    assert operator.appetite(5, 21_000, 0) == 10


def test_a_writer_that_needs_order_gets_the_next_batch_once_the_one_before_is_visible() -> None:
    bench = Bench(aside=True, in_order=True)
    bench.bundle(1)
    bench.bundle(2)
    bench.durable(2)
    assert [each.number for each in bench.asked] == [0]
    bench.writer.fail = UnavailableError("away")
    bench.asked.pop().carried_out().tell(5)
    bench.writer.fail = None
    bench.bundle(now_us=200_000)
    assert [each.number for each in bench.asked] == [0]
    bench.asked.pop().carried_out().tell(300_000)
    assert [each.number for each in bench.asked] == [1]
    bench.asked.pop().carried_out().tell(300_000)
    assert bench.writer.published == [b"0:1", b"1:2"]


def test_a_commit_does_not_hurry_a_batch_that_failed() -> None:
    bench = Bench(aside=True, in_order=True)
    bench.bundle(1)
    bench.durable(1)
    bench.writer.fail = UnavailableError("away")
    bench.asked.pop().carried_out().tell(1_000)
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
        bench.asked.pop().carried_out().tell(0)
    assert bench.writer.published == [b"0:1", b"1:2"]
    assert bench.operator.hold(0).at == MAX_TIME


@pytest.mark.parametrize("aside", [False, True])
def test_nothing_is_swept_before_it_is_published(aside: bool) -> None:
    """Nor is a batch of the new owner published before that: a sink that keeps the latest is fenced by the sweep."""
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


def test_a_record_that_the_target_does_not_take_is_a_dead_letter() -> None:
    bench = Bench(aside=False)
    refused = [Refused(SinkRecord("k", 1, 10), "too large")]
    bench.writer.take_refused = lambda: [refused.pop()] if refused else []  # type: ignore[method-assign]
    overlay = Overlay(bench.store)
    batch = Batch("out", [], [10, 20], ["k", "k"], [1, 2])
    bundle = Bundle(1, 0, 0, [Arrival("c", 1, 0, batch, None, 0)], overlay, {})
    bench.operator.run(bundle)
    (raw,) = bundle.outputs.streams["dead_letters"].raws
    letter = msgspec.msgpack.decode(raw)
    told = (letter["reason"], letter["computation"], letter["stream"], letter["key"])
    assert told == ("too large", "sink.out", "out", "k")
    assert (bundle.counters["records_out"], bundle.counters["dead_letters"]) == (1, 1)


def refuses(bench: Bench, committable: bytes, without: bytes) -> None:
    """The target takes nothing of a batch from here on, but takes it ``without`` a record."""
    plain = bench.writer.publish

    def publish(given: bytes) -> None:
        if given == committable:
            raise BatchRefusedError([Refused(SinkRecord("k", 2, 20), "too even")], without)
        plain(given)

    bench.writer.publish = publish  # type: ignore[method-assign]


@pytest.mark.parametrize(("aside", "in_order"), [(False, False), (True, False), (True, True)])
def test_a_record_that_the_target_refuses_becomes_a_dead_letter_and_the_rest_is_published(
    aside: bool, in_order: bool
) -> None:
    bench = Bench(aside=aside, in_order=in_order)
    refuses(bench, b"0:1,2", b"0:1")
    bench.bundle(1, 2)
    bench.durable(1)
    bench.answers()
    assert bench.operator.wakes_at(7) == 7
    assert bench.operator.hold(0).at == 10
    bench.bundle(now_us=7)
    assert bench.letters == [("too even", 2)]
    assert bench.counters["records_out"] == 1
    assert [data for _, data in bench.store.scan(COMMITTABLE)] == [b"0:1"]
    bench.answers()
    assert bench.writer.published == [], "not before the letter is durable"
    bench.durable(2)
    bench.answers()
    assert bench.writer.published == [b"0:1"]
    bench.bundle()
    assert (bench.committables(), bench.letters) == (0, [("too even", 2)])


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_a_crash_around_a_refusal_makes_one_letter(committed: bool, in_order: bool) -> None:
    """Before the commit of the letter the whole batch is tried again; after it, the rest."""
    former = Bench(aside=True, in_order=in_order)
    refuses(former, b"0:1,2", b"0:1")
    former.bundle(1, 2)
    former.durable(1)
    former.answers()
    if committed:
        former.bundle()
    writer = Recording()
    heir = Bench(aside=True, in_order=in_order, store=former.store, writer=writer, refusal=(b"0:1,2", b"0:1"))
    for number in range(1, 4):
        heir.bundle(now_us=number)
        heir.durable(number)
        heir.answers()
    assert former.letters + heir.letters == [("too even", 2)]
    assert writer.published == [b"0:1"]
    heir.bundle()
    assert heir.committables() == 0


def test_a_refused_batch_of_a_former_owner_does_not_stop_those_behind_it() -> None:
    former = Bench(aside=True, in_order=True)
    former.bundle(1, 2)
    former.bundle(3)
    writer = Recording()
    writer.sweep = lambda committables: writer.published.append(b"swept")  # type: ignore[method-assign]
    heir = Bench(aside=True, in_order=True, store=former.store, writer=writer, refusal=(b"0:1,2", b"0:1"))
    for number in range(1, 4):
        heir.answers()
        heir.bundle(now_us=number)
        heir.durable(number)
    assert heir.letters == [("too even", 2)]
    assert writer.published == [b"0:1", b"1:3", b"swept"]
    assert heir.operator.unrest() == 0


def test_what_holds_the_watermark_names_the_error_of_a_target_that_is_away_until_it_is_back() -> None:
    bench = Bench(aside=False)
    bench.writer.fail = UnavailableError("connection refused")
    bench.bundle(1)
    told = bench.operator.told
    bench.durable(1)
    assert bench.operator.hold(0).holder == "sink batch 0, not yet published: connection refused"
    assert bench.operator.told != told  # a report goes out, although the watermark has not moved
    bench.writer.fail = None
    bench.bundle(2, now_us=10**9)
    bench.durable(2)
    assert bench.operator.hold(0).holder == ""


def splits(bench: Bench) -> None:
    """The target takes nothing of a batch with the row 2, and does not tell that it is this row."""
    plain = bench.writer.publish

    def publish(given: bytes) -> None:
        number, _, text = given.decode().partition(":")
        rows = text.split(",")
        if rows == ["2"]:
            raise BatchRefusedError([Refused(SinkRecord("k", 2, 20), "too even")], f"{number}:".encode())
        if "2" in rows:
            middle = len(rows) // 2
            parts = [",".join(rows[:middle]), ",".join(rows[middle:])]
            raise BatchSplitError("some row", [f"{int(number) + at}:{part}".encode() for at, part in enumerate(parts)])
        plain(given)

    bench.writer.publish = publish  # type: ignore[method-assign]
    bench.writer.renumbered = lambda given, number: f"{number}:{given.decode().partition(':')[2]}".encode()  # type: ignore[method-assign]


def run_on(bench: Bench) -> None:
    """Bundles without records, until nothing is on its way any more."""
    for _ in range(30):
        bench.bundle(now_us=bench.number * 200_000)
        bench.durable(bench.number, now_us=bench.number * 200_000)
        bench.answers()


def test_a_batch_of_which_no_row_is_named_is_halved_until_the_row_is_found() -> None:
    bench = Bench(aside=True, in_order=True)
    splits(bench)
    bench.bundle(1, 2, 3, 4)
    bench.bundle(5, 6)
    bench.durable(2)
    bench.answers()
    run_on(bench)
    assert bench.letters == [("too even", 2)]
    numbers, rows = zip(*(data.decode().split(":") for data in bench.writer.published), strict=True)
    assert ",".join(rows).replace(",,", ",") == "1,3,4,5,6", "in their order"
    assert list(numbers) == [str(number) for number in range(len(numbers))], "without gaps"
    assert (bench.committables(), bench.operator.hold(0).at) == (0, MAX_TIME)
    bench.bundle(7)
    bench.durable(bench.number)
    bench.answers()
    assert bench.writer.published[-1] == f"{len(numbers)}:7".encode()


@pytest.mark.parametrize("dies_after", range(12))
def test_a_crash_while_a_batch_is_halved_makes_one_letter_and_every_other_row_once(dies_after: int) -> None:
    target = Recording()
    bench = Bench(aside=True, in_order=True, writer=target)
    splits(bench)
    bench.bundle(1, 2, 3, 4)
    bench.bundle(5, 6)
    for step in range(dies_after):
        if step % 3 == 0:
            bench.durable(bench.number, now_us=step * 200_000)
        elif step % 3 == 1:
            bench.answers()
        else:
            bench.bundle(now_us=step * 200_000)
    heir_writer = Recording()
    heir_writer.published = target.published
    heir = Bench(aside=True, in_order=True, store=bench.store, writer=heir_writer)
    splits(heir)
    heir.answers()
    run_on(heir)
    assert bench.letters + heir.letters == [("too even", 2)]
    rows: dict[str, str] = {}
    for data in target.published:
        number, _, text = data.decode().partition(":")
        assert rows.setdefault(number, text) == text, "a number stands for the same rows, whoever publishes it"
    assert [row for text in rows.values() for row in text.split(",") if row] == ["1", "3", "4", "5", "6"]
