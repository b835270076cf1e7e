"""Begins the spans of a worker: finds the traced records of a bundle, and sets the attributes of
their spans."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.model.keys import Key
from millwheel.core.model.lease import Lease
from millwheel.core.model.names import NO_CHANNEL, NodeName, ShardName, Token
from millwheel.core.pipeline.spec import TracingSpec
from millwheel.core.tracing import (
    NOT_SAMPLED,
    SpanKind,
    Spans,
    TraceContext,
    TraceSpan,
    chosen_numbers,
    context_of,
    is_chosen,
    new_trace,
    trace_id,
)
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.delivery.outbox import Send
from millwheel.engine.workers.tracing.table import Arrived, TraceTable, index_of
from millwheel.engine.workers.tracing.traced_bundle import TracedBundle, TracedRecord

_MOST = 256
"""Records of one bundle, or one read, that get spans; a span takes as long as several dozen
records."""
_KEY_CHARS = 120  # of a key that a span shows


def injected_channel(stream: str) -> str:
    """The channel of the table for records of an injected stream, which come on none."""
    return f"\0{stream}"


@dataclass(frozen=True, slots=True)
class Tracing:
    """Tracing in one worker. ``now_us`` reads its clock. ``left_out`` counts records that get no
    span, because a bundle has too many."""

    spec: TracingSpec
    pipeline: str
    worker: str
    spans: Spans
    now_us: Callable[[], int]
    table: TraceTable = field(default_factory=TraceTable)
    left_out: list[int] = field(default_factory=lambda: [0])

    def injected(self, stream: str, ids: Sequence[str], parents: Sequence[str]) -> None:
        """Take the contexts of records from outside, perhaps with the headers ``parents`` ("":
        none)."""
        channel = injected_channel(stream)
        for identity, text in zip(ids, parents or [""] * len(ids), strict=False):
            parent, _, state = text.partition("\n")
            context = context_of(parent, state)
            if (
                context is None
                and self.spans.begins_traces
                and is_chosen(self.spec.sample, channel, identity)
            ):
                context = new_trace(trace_id(self.pipeline, channel, identity))
            if context is not None and context.sampled:
                self.table.put(channel, identity, Arrived(context))

    def outgoing(self, send: Send) -> bytes:
        """The trace contexts that travel beside a delivery."""
        return self.table.outgoing(send.channel, send.batch, self.worker, self.now_us())

    def incoming(self, channel: str, data: bytes) -> None:
        """Take the contexts that have come beside a delivery."""
        self.table.incoming(channel, data, self.now_us())

    def at_most(self, count: int) -> int:
        """How many of ``count`` records get spans; the others are counted."""
        self.left_out[0] += max(count - _MOST, 0)
        return min(count, _MOST)


@dataclass(frozen=True, slots=True)
class ShardTracing:
    """Tracing of one shard under one owner."""

    tracing: Tracing
    node: NodeName
    shard: ShardName
    token: Token
    hashed: Callable[[Key], int]
    is_source: bool
    _undurable: deque[tuple[int, TracedBundle]] = field(default_factory=deque)

    def bundle(self, number: int, arrivals: Sequence[Arrival]) -> TracedBundle | None:
        """The traced records of a bundle, whose spans begin; None if there are none. Bundles of a
        source may read some."""
        records = [
            (which, index, arrived)
            for which, arrival in enumerate(arrivals)
            for index, arrived in self.tracing.table.found(_channel(arrival), arrival.batch)
        ]
        if not records and not self.is_source:
            return None
        traced = TracedBundle(
            self.tracing.table, self.shard, self.tracing.now_us, self._begin, self.read
        )
        count = sum(len(arrival.batch) for arrival in arrivals)
        for which, index, arrived in records[: self.tracing.at_most(len(records))]:
            span = self._received(arrivals[which].batch, index, arrived)
            span.note("millwheel.bundle", number)
            span.note("millwheel.bundle_records", count)
            traced.records.append(TracedRecord(which, index, span))
        return traced

    def wait(self, number: int, traced: TracedBundle) -> None:
        """Keep the spans of a bundle that has run; they end once the commit with this number is
        durable."""
        if traced.records:
            self._undurable.append((number, traced))

    def durable(self, number: int) -> None:
        """End the spans of all commits up to this number, which are durable."""
        while self._undurable and self._undurable[0][0] <= number:
            commit, traced = self._undurable.popleft()
            traced.durable(commit)

    def read(
        self,
        channel: str,
        positions: Any,
        contexts: Mapping[int, TraceContext] | None,
        batches: Iterable[tuple[NodeName, AnyBatch]],
    ) -> None:
        """Begin the spans of a read of these positions of a partition, sent as ``batches``;
        ``contexts`` came with the records, by position."""
        by_position = contexts or {}
        chosen = [
            (number, context)
            for number, context in by_position.items()
            if context is not NOT_SAMPLED and context.sampled
        ]
        chosen += self._sampled(channel, positions, by_position)
        if not chosen:
            return
        sent = [batch for _, batch in batches]
        for number, context in sorted(chosen)[: self.tracing.at_most(len(chosen))]:
            self._read_one(channel, number, context, sent)

    def _sampled(
        self, channel: str, positions: Any, by_position: Mapping[int, TraceContext]
    ) -> list[tuple[int, TraceContext]]:
        if not self.tracing.spans.begins_traces or not self.tracing.spec.sample:
            return []
        numbers = chosen_numbers(self.tracing.spec.sample, channel, np.asarray(positions, np.int64))
        pipeline = self.tracing.pipeline
        return [
            (each, new_trace(trace_id(pipeline, channel, each)))
            for each in numbers
            if each not in by_position
        ]

    def _read_one(
        self, channel: str, number: int, context: TraceContext, sent: Sequence[AnyBatch]
    ) -> None:
        span = self._begin("read", SpanKind.CONSUMER, context, self.tracing.now_us())
        span.note("millwheel.partition", channel.partition("/")[2])
        span.note("millwheel.position", number)
        at = next(
            ((batch, index) for batch in sent if (index := _index(batch, number)) is not None), None
        )
        if at is None:
            span.note("millwheel.dropped", True)  # late, invalid, or without a consumer
        else:
            self._describe(span, *at)
            self.tracing.table.put(channel, number, Arrived(span.context))
        span.end(self.tracing.now_us())

    def _received(self, batch: AnyBatch, index: int, arrived: Arrived) -> TraceSpan:
        parent = arrived.context
        if arrived.sent_us:
            hop = self._begin("deliver", SpanKind.CONSUMER, parent, arrived.sent_us)
            hop.note("millwheel.sender", arrived.sender)
            hop.end(arrived.came_us)
            parent = hop.context
        span = self._begin("process", SpanKind.INTERNAL, parent, self.tracing.now_us())
        if not self.is_source:  # injected records have no key and no event time yet
            self._describe(span, batch, index)
        return span

    def _begin(self, what: str, kind: SpanKind, parent: TraceContext, at_us: int) -> TraceSpan:
        facts: dict[str, str | int | bool] = {
            "millwheel.computation": self.node,
            "millwheel.shard": self.shard,
            "millwheel.worker": self.tracing.worker,
            "millwheel.lease_token": self.token,
        }
        if not Lease(self.token).is_first:
            # An earlier owner may have worked on the record, too: its spans, if they were sent, lie
            # in the same trace.
            facts["millwheel.recovered"] = True
        return self.tracing.spans.begin(f"{self.node} {what}", kind, parent, at_us, facts)

    def _describe(self, span: TraceSpan, batch: AnyBatch, index: int) -> None:
        key = (
            key_list(batch.keys[index : index + 1])[0]
            if isinstance(batch, ColumnBatch)
            else batch.keys[index]
        )
        span.note("millwheel.stream", batch.stream)
        span.note("millwheel.event_time_us", int(batch.timestamps[index]))
        span.note("millwheel.key_hash", f"{self.hashed(key):016x}")
        if self.tracing.spec.keys:
            span.note("millwheel.key", repr(key)[:_KEY_CHARS])


def _channel(arrival: Arrival) -> str:
    return (
        injected_channel(arrival.batch.stream) if arrival.channel == NO_CHANNEL else arrival.channel
    )


def _index(batch: AnyBatch, number: int) -> int | None:
    """The index of a record with this number."""
    seqs = batch.seqs
    index = index_of(seqs, number)
    return index if index < len(seqs) and seqs[index] == number else None
