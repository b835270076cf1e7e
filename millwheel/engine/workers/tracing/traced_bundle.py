"""The traced records of one bundle and their spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import attrgetter
from typing import Any, TypeVar

from millwheel.core.columns.batch import AnyBatch
from millwheel.core.model.names import NodeName
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.core.tracing import SpanKind, TraceContext, TraceSpan
from millwheel.engine.workers.tracing.table import Arrived, TraceTable

R = TypeVar("R")
Lengths = Mapping[str, int]
"""How many productions there are, by stream."""
Read = Callable[
    [str, Any, Mapping[int, TraceContext] | None, Iterable[tuple[NodeName, AnyBatch]]], None
]
"""See :meth:`.tracing.ShardTracing.read`."""


@dataclass(frozen=True, slots=True)
class TracedRecord:
    """A traced record in the arrival with the index ``arrival``, at ``index`` there, and its span
    in this node."""

    arrival: int
    index: int
    span: TraceSpan


@dataclass(slots=True)
class TracedBundle:
    """Its spans begin with the bundle and end once its commit is durable. ``made`` has the spans
    that productions come from, by stream and index; ``now_us`` reads the clock."""

    table: TraceTable
    channel: str
    now_us: Callable[[], int]
    begin: Callable[[str, SpanKind, TraceContext, int], TraceSpan]
    read: Read
    records: list[TracedRecord] = field(default_factory=list)
    made: dict[str, dict[int, TraceSpan]] = field(default_factory=dict)
    publishing: list[TraceSpan] = field(default_factory=list)

    # --- which productions come of which record ---------------------------------------------------

    def watched(
        self, rows: Iterable[R], arrival: int, lengths: Callable[[], Lengths]
    ) -> Iterable[R]:
        """The rows of an arrival, for a loop that processes one after the other: its productions
        during a traced row belong to that row."""
        traced = [each for each in self.records if each.arrival == arrival]
        if not traced:
            return rows
        rest, start = iter(rows), 0
        parts: list[Iterable[R]] = []
        for each in sorted(traced, key=attrgetter("index")):
            # Slices, not a check of each row, so that untraced rows cost nothing extra.
            parts += [islice(rest, each.index - start), self._one(rest, each.span, lengths)]
            start = each.index + 1
        return chain(*parts, rest)

    def _one(
        self, rows: Iterator[R], span: TraceSpan, lengths: Callable[[], Lengths]
    ) -> Iterator[R]:
        before = lengths()
        yield next(rows)
        # asked for the next row, the loop has finished this one
        self.credit(span, before, lengths())

    def credit(self, span: TraceSpan, before: Lengths, after: Lengths) -> None:
        """Attribute the productions made between two looks to the record of a span."""
        for stream, length in after.items():
            if stream == DEAD_LETTERS and length > before.get(stream, 0):
                span.fail("it became a dead letter")
            for index in range(before.get(stream, 0), length):
                self.made.setdefault(stream, {})[index] = span

    def shorten(self, lengths: Sequence[int]) -> None:
        """Keep only the first arrivals, with ``lengths`` records each. The spans of the others
        never end, so they are not sent: each has one when it comes again."""
        ends = dict(enumerate(lengths))
        self.records = [each for each in self.records if each.index < ends.get(each.arrival, 0)]

    def forget_made(self) -> None:
        """Forget the productions: the bundle runs again."""
        self.made.clear()

    def leave_out(self, stream: str) -> None:
        """Forget the traces of a stream, some of whose productions are taken back: the indexes no
        longer match."""
        self.made.pop(stream, None)

    def numbered(self, stream: str, batch: AnyBatch) -> None:
        """Take the numbers or ids of the productions of a stream."""
        identities = batch.seqs if len(batch.seqs) else batch.ids
        if identities is None:
            return
        for index, span in self.made.get(stream, {}).items():
            self.table.put(self.channel, identities[index], Arrived(span.context))

    # --- the life of the bundle -------------------------------------------------------------------

    def durable(self, number: int) -> None:
        """End the spans: the commit with this number is durable."""
        now_us = self.now_us()
        for record in self.records:
            record.span.note("millwheel.commit", number)
            record.span.end(now_us)

    def rows(self, lengths: list[int]) -> dict[int, TraceContext]:
        """The contexts of the traced records by their index in all arrivals, which have these
        lengths."""
        starts = [sum(lengths[:index]) for index in range(len(lengths))]
        return {starts[each.arrival] + each.index: each.span.context for each in self.records}

    def publish(self, number: int) -> None:
        """Begin the spans of a batch that is about to be published."""
        if not self.publishing:
            now_us = self.now_us()
            self.publishing = [self._publishing(record, number, now_us) for record in self.records]

    def _publishing(self, record: TracedRecord, number: int, now_us: int) -> TraceSpan:
        span = self.begin("publish", SpanKind.PRODUCER, record.span.context, now_us)
        span.note("millwheel.batch", number)
        return span

    def published(self, error: str = "") -> None:
        """End the spans of an attempt to publish a batch: each attempt has one."""
        now_us = self.now_us()
        for span in self.publishing:
            if error:
                span.fail(error)
            span.end(now_us)
        self.publishing = []
