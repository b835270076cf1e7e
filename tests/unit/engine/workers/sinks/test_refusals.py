"""Rows that a target refuses: each is one dead letter, the others are published, whoever dies
when."""

from __future__ import annotations

import msgspec
import pytest

from millwheel.connect.sinks.base import BatchRefusedError, BatchSplitError, Refused, SinkRecord
from millwheel.core.formats.store_layout import COMMITTABLE
from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.state.overlay import Overlay
from tests.unit.engine.workers.sinks.sink_bench import Bench, Recording, refuses


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
    successor = Bench(
        aside=True, in_order=in_order, store=former.store, writer=writer, refusal=(b"0:1,2", b"0:1")
    )
    for number in range(1, 4):
        successor.bundle(now_us=number)
        successor.durable(number)
        successor.answers()
    assert former.letters + successor.letters == [("too even", 2)]
    assert writer.published == [b"0:1"]
    successor.bundle()
    assert successor.committables() == 0


def test_a_refused_batch_of_a_former_owner_does_not_stop_those_behind_it() -> None:
    former = Bench(aside=True, in_order=True)
    former.bundle(1, 2)
    former.bundle(3)
    writer = Recording()
    writer.sweep = lambda committables: writer.published.append(b"swept")  # type: ignore[method-assign]
    successor = Bench(
        aside=True, in_order=True, store=former.store, writer=writer, refusal=(b"0:1,2", b"0:1")
    )
    for number in range(1, 4):
        successor.answers()
        successor.bundle(now_us=number)
        successor.durable(number)
    assert successor.letters == [("too even", 2)]
    assert writer.published == [b"0:1", b"1:3", b"swept"]
    assert successor.operator.unfinished() == 0


def splits(bench: Bench) -> None:
    """The target takes nothing of a batch with the row 2, and does not tell that it is this row."""
    plain = bench.writer.publish

    def publish(given: bytes) -> None:
        number, _, text = given.decode().partition(":")
        rows = text.split(",")
        if rows == ["2"]:
            raise BatchRefusedError(
                [Refused(SinkRecord("k", 2, 20), "too even")], f"{number}:".encode()
            )
        if "2" in rows:
            middle = len(rows) // 2
            parts = [",".join(rows[:middle]), ",".join(rows[middle:])]
            raise BatchSplitError(
                "some row", [f"{int(number) + at}:{part}".encode() for at, part in enumerate(parts)]
            )
        plain(given)

    bench.writer.publish = publish  # type: ignore[method-assign]
    bench.writer.renumbered = lambda given, number: (
        f"{number}:{given.decode().partition(':')[2]}".encode()
    )  # type: ignore[method-assign]


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
def test_a_crash_while_a_batch_is_halved_makes_one_letter_and_every_other_row_once(
    dies_after: int,
) -> None:
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
    successor = Bench(aside=True, in_order=True, store=bench.store, writer=heir_writer)
    splits(successor)
    successor.answers()
    run_on(successor)
    assert bench.letters + successor.letters == [("too even", 2)]
    rows: dict[str, str] = {}
    for data in target.published:
        number, _, text = data.decode().partition(":")
        assert rows.setdefault(number, text) == text, (
            "a number stands for the same rows, whoever publishes it"
        )
    assert [row for text in rows.values() for row in text.split(",") if row] == [
        "1",
        "3",
        "4",
        "5",
        "6",
    ]
