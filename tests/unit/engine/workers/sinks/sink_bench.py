"""A sink on a bench: one shard, its target, and the threads that publish, a step at a time."""

from __future__ import annotations

from collections import Counter

import msgspec

from millwheel.connect.sinks.base import BatchRefusedError, Refused, SinkBatch, SinkRecord, Writer
from millwheel.core.formats.store_layout import COMMITTABLE
from millwheel.core.model.records import Batch
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.sinks.pending_batches import Publication
from millwheel.engine.workers.sinks.sink import SinkOperator, SinkShard
from millwheel.engine.workers.state.overlay import Overlay
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
        self.operator = SinkOperator(
            self.writer, shard, lambda stream, values: values, 0, 10, at_once
        )

    def bundle(self, *values: int, now_us: int = 0) -> None:
        """A bundle with these records, if the operator wants any, and its commit."""
        wanted = self.operator.intake(len(values), now_us, 0)
        batch = Batch(
            "out", [], [value * 10 for value in values], ["k"] * len(values), list(values)
        )
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
            publication.carried_out().report(5)

    def durable(self, number: int, now_us: int = 0) -> None:
        self.operator.durable(number, now_us)

    def committables(self) -> int:
        return len(list(self.store.scan(COMMITTABLE)))


def refuses(bench: Bench, committable: bytes, without: bytes) -> None:
    """The target takes nothing of a batch from here on, but takes it ``without`` a record."""
    plain = bench.writer.publish

    def publish(given: bytes) -> None:
        if given == committable:
            raise BatchRefusedError([Refused(SinkRecord("k", 2, 20), "too even")], without)
        plain(given)

    bench.writer.publish = publish  # type: ignore[method-assign]
