"""Large batches are prepared by another thread: the bundle waits for it, and is committed only
afterwards."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from millwheel.adapters.waits import waiting
from millwheel.connect.sinks.base import Refused, SinkBatch, SinkRecord, Writer
from millwheel.core.formats.store_layout import COMMITTABLE
from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.sinks.preparing import Preparation, Prepared, prepared
from millwheel.engine.workers.sinks.sink import SinkOperator, SinkShard
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import UnavailableError
from tests.fakes.plain_storage import SimStore


class Wide(Writer):
    """Prepares batches of three records and more aside, refuses the value 13, and fails for 666."""

    publishes_aside = True
    prepares_aside = 3

    def __init__(self) -> None:
        self.refused: list[Refused] = []
        self.room = True

    def prepare(self, batch: SinkBatch) -> bytes:
        if not self.room:
            raise UnavailableError("the disk is full; free some space")
        if any(record.value == 666 for record in batch.records):
            raise OSError("a full disk")
        self.refused = [
            Refused(record, "unlucky") for record in batch.records if record.value == 13
        ]
        values = [str(record.value) for record in batch.records if record.value != 13]
        return f"{batch.number} {batch.attempt}:{','.join(values)}".encode()

    def take_refused(self) -> list[Refused]:
        return self.refused

    def publish(self, committable: bytes) -> None: ...

    def sweep(self, committables: list[bytes]) -> None: ...


class Shop:
    """A shard of the sink, and its threads as a list of tasks."""

    def __init__(self, at_once: bool = False, threads: bool = True) -> None:
        self.tasks: list[Any] = []
        self.store = SimStore({})
        shard = SinkShard(
            "sink.out-0", 7, self.store, self.tasks.append if threads else None, "p", "out"
        )
        self.writer = Wide()
        self.operator = SinkOperator(
            self.writer, shard, lambda stream, values: values, 0, 10, at_once
        )

    def bundle(self, *values: int, number: int = 1) -> Bundle:
        batch = Batch(
            "out", [], [value * 10 for value in values], ["k"] * len(values), list(values)
        )
        return Bundle(number, 0, 0, [Arrival("c", 1, 0, batch, None, 0)], Overlay(self.store), {})

    def commits(self, bundle: Bundle) -> list[bytes]:
        self.operator.run(bundle)
        self.store.apply(*bundle.overlay.take())
        return [committable for _, committable in self.store.scan(COMMITTABLE)]


def test_a_large_batch_is_prepared_by_its_thread_and_committed_once_it_is() -> None:
    shop = Shop()
    bundle = shop.bundle(1, 2, 3)
    assert shop.operator.ask(bundle, 0)
    assert shop.operator.asks_at() == MAX_TIME
    (task,) = shop.tasks
    assert isinstance(task, Preparation)
    assert task.lane == "prepare sink.out-0"
    assert shop.operator.ask(bundle, 5), "it is asked again, and asks no second thread"
    assert len(shop.tasks) == 1
    task.carried_out().report(9)
    assert shop.operator.asks_at() == 0
    assert not shop.operator.ask(bundle, 9)
    assert shop.commits(bundle) == [b"0 7-1:1,2,3"]
    assert shop.operator.hold(0).at == 10, "until it is published"


def test_the_next_batch_has_its_own_number_and_thread() -> None:
    shop = Shop()
    for number in (1, 2):
        bundle = shop.bundle(1, 2, number, number=number)
        assert shop.operator.ask(bundle, 0)
        shop.tasks.pop().carried_out().report(0)
        assert not shop.operator.ask(bundle, 0)
        found = shop.commits(bundle)
    assert found == [b"0 7-1:1,2,1", b"1 7-2:1,2,2"]


@pytest.mark.parametrize("shop", [Shop(), Shop(at_once=True), Shop(threads=False)])
def test_the_loop_prepares_what_is_small_or_shown_at_once(shop: Shop) -> None:
    bundle = shop.bundle(1, 2) if shop.operator._aside else shop.bundle(1, 2, 3)
    assert not shop.operator.ask(bundle, 0)
    assert shop.tasks == []
    shop.operator.run(bundle)


def test_records_that_the_target_refuses_are_letters_of_the_same_commit() -> None:
    shop = Shop()
    bundle = shop.bundle(1, 13, 3)
    shop.operator.ask(bundle, 0)
    shop.tasks.pop().carried_out().report(0)
    assert shop.commits(bundle) == [b"0 7-1:1,3"]
    assert len(bundle.outputs.streams["dead_letters"].raws) == 1
    assert bundle.counters["records_out"] == 2


def test_an_error_of_the_thread_is_raised_by_the_loop() -> None:
    shop = Shop()
    shop.operator.ask(shop.bundle(1, 2, 666), 0)
    done = shop.tasks.pop().carried_out()
    with pytest.raises(OSError, match="a full disk"):
        done.report(0)


@pytest.mark.parametrize("threads", [True, False])
def test_a_batch_waits_for_room_says_so_and_goes_on_once_there_is_some(threads: bool) -> None:
    shop = Shop(threads=threads)
    shop.writer.room = False
    bundle = shop.bundle(1, 2, 3)
    for now_us in (0, 100_000):
        assert shop.operator.ask(bundle, now_us)
        for task in shop.tasks:
            task.carried_out().report(now_us)
        assert len(shop.tasks) == threads, "the same thread is not asked twice for one try"
        shop.tasks.clear()
        assert shop.operator.ask(bundle, now_us)
        assert shop.operator.asks_at() == now_us + 100_000
    [told] = waiting(least_s=0)
    assert (told.what, told.why) == ("sink out", "the disk is full; free some space")
    shop.writer.room = True
    assert shop.operator.ask(bundle, 200_000) == threads
    for task in shop.tasks:
        task.carried_out().report(200_000)
    assert not shop.operator.ask(bundle, 200_000)
    assert waiting(least_s=0) == []
    assert shop.commits(bundle) == [b"0 7-1:1,2,3"]


def test_what_was_refused_belongs_to_its_batch() -> None:
    record = SinkRecord("k", 13, 0)
    batch = SinkBatch(0, "7-1", [record])
    told: list[Prepared | None] = []
    Preparation(
        "s", 7, batch, Wide(), lambda found, error: told.append(found)
    ).carried_out().report(0)
    assert told == [Prepared(b"0 7-1:", [Refused(record, "unlucky")])]


def test_writers_get_decimals_as_numbers_and_none_beyond_64_bits() -> None:
    records = [SinkRecord("k", {"d": each}, 1) for each in (150, 1e19, None)]
    writer = _Kept()
    found = prepared(writer, SinkBatch(0, "1-0", records), {"d": 2})
    assert [each.value for each in writer.records] == [{"d": Decimal("1.50")}, {"d": None}]
    [refused] = found.refused
    assert refused.record == records[1]
    assert "d is 1e+19 units" in refused.reason


class _Kept(Writer):
    records: list[SinkRecord]

    def prepare(self, batch: SinkBatch) -> bytes:
        self.records = batch.records
        return b""

    def publish(self, committable: bytes) -> None:
        raise AssertionError("nothing is committed")

    def sweep(self, committables: list[bytes]) -> None:
        raise AssertionError("nothing is left over")
