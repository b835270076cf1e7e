"""Runs a user's Computation that takes the records of a key together, ``process_batch``.

Some records have calls of their own: a record behind the watermark, whose timers may be due at
once; a traced one, which is credited with its productions; each record where productions are named
after single records, or wait for their order; and each record of a bundle in which a call has
failed, so that only the record at fault is set aside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any

from millwheel.api import Context
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Record
from millwheel.core.tracing import TraceSpan
from millwheel.core.windows.lateness import is_behind
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.callbacks import CallbackOperator, Together

_time_of = attrgetter("timestamp")
Spans = dict[int, TraceSpan]
"""The spans of traced records, by the ``id()`` of the record."""


class BatchOperator(CallbackOperator):
    """The operator of a computation whose callback has a ``process_batch``."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._process = self._process_one

    def _process_one(self, ctx: Context, record: Record) -> None:
        self._context.together = True
        try:
            self._instance.process_batch(ctx, [record])
        finally:
            self._context.together = False

    def _run_records(self, bundle: Bundle) -> None:
        if self._identified or self._order.buffer is not None or self._attempts.avoided.apart:
            super()._run_records(bundle)
            return
        spans: Spans = {}
        by_key = self._by_key(bundle, spans)
        self._state.read_ahead(list(by_key))
        late = any(
            is_behind(arrival.batch.earliest, bundle.watermark) for arrival in bundle.arrivals
        )
        self._at = at = Together()
        for key, records in by_key.items():
            at.key = key
            if not late and not spans and not self._state.ages:
                self._call(key, records, bundle)
                continue
            for some in self._parts(records, bundle.watermark, spans):
                self._call_traced(key, some, bundle, spans)

    def _by_key(self, bundle: Bundle, spans: Spans) -> dict[Key, list[Record]]:
        """The records of each key, in the order of their arrival."""
        by_key: defaultdict[Key, list[Record]] = defaultdict(list)
        traced = (
            {}
            if bundle.traced is None
            else {(each.arrival, each.index): each.span for each in bundle.traced.records}
        )
        for number, arrival in enumerate(bundle.arrivals):
            batch = arrival.batch.rows()
            records = self._records(batch, arrival.channel)
            if traced:
                records = list(records)
                spans |= {
                    id(records[index]): span for (of, index), span in traced.items() if of == number
                }
            for key, record in zip(batch.keys, records, strict=True):
                by_key[key].append(record)
        return by_key

    def _parts(self, records: list[Record], watermark: int, spans: Spans) -> Iterator[list[Record]]:
        """The records of a key that may come together."""
        ages = self._state.ages

        def call_of(record: Record) -> object:
            if id(record) in spans or is_behind(record.timestamp, watermark):
                return object()  # equal to no other
            # A time to live is judged by the time of the call. See
            # test_state_with_a_time_to_live_is_that_of_each_record.
            return record.timestamp if ages else None

        return (list(some) for _, some in groupby(records, call_of))

    def _call_traced(self, key: Key, records: list[Record], bundle: Bundle, spans: Spans) -> None:
        span, outputs = spans.get(id(records[0])), bundle.outputs
        if span is None or bundle.traced is None:
            self._call(key, records, bundle)
            return
        before = outputs.lengths()
        self._call(key, records, bundle)
        bundle.traced.credit(span, before, outputs.lengths())

    def _call(self, key: Key, records: list[Record], bundle: Bundle) -> None:
        context, state = self._context, self._state
        first = records[0].timestamp if len(records) == 1 else min(map(_time_of, records))
        context.point(key, first)
        context.together = True
        self._instance.process_batch(context, records)
        context.together = False
        if state.unsettled:
            self._order.settle(bundle, self._fire_one)
