"""Steps, branches, removal of duplicates and tables as Computations, so that they share the
bundles, retries and dead letters of callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import xxhash

from millwheel.api import Computation, Context, MapState, ValueState
from millwheel.core.expressions.fields import field_reader
from millwheel.core.model.records import Record
from millwheel.core.pipeline.steps import Apply, Choose
from millwheel.core.pipeline.table_changes import (
    ChangePart,
    IdentifiedBy,
    Kept,
    TableOutcome,
    applied,
    identity,
    passed,
    split,
)
from millwheel.core.pipeline.work import DeduplicateSpec, TableSpec
from millwheel.core.windows.panes import retracted
from millwheel.engine.workers.operators.record_joins import ordered

Fields = Mapping[str, tuple[str, ...]]
"""The declared fields of the records of a stream, in their order, for streams whose records are
passed on with all of their fields, and may come in columns."""


class Stepped(Computation):
    """The computation that sends the results of steps to each output, with the record's key and
    timestamp. Stateless."""

    def __init__(self, apply: Apply, outputs: tuple[str, ...], passed_on: Fields) -> None:
        self._apply = apply
        self._outputs = outputs
        self._passed_on = passed_on

    def process_record(self, ctx: Context, record: Record) -> None:
        """Send the results of one record: none, one or several."""
        for value in self._apply(_in_order(record, self._passed_on)):
            for stream in self._outputs:
                ctx.produce(stream, value)


UNMATCHED = "unmatched"
"""The counter of records that no branch takes."""


class Branched(Computation):
    """The computation that sends each record to the streams of its branches, as it is.
    Stateless."""

    def __init__(self, choose: Choose, passed_on: Fields) -> None:
        self._choose = choose
        self._passed_on = passed_on

    def process_record(self, ctx: Context, record: Record) -> None:
        """Send one record to one stream or to several, or count it."""
        streams = self._choose(record.value)
        if not streams:
            ctx.count(UNMATCHED)
            return
        value = _in_order(record, self._passed_on)
        for stream in streams:
            ctx.produce(stream, value)


def _in_order(record: Record, passed_on: Fields) -> Any:
    """The value with its fields in the order in which columns would have them."""
    fields = passed_on.get(record.stream) if passed_on else None
    return ordered(record.value, fields) if fields else record.value


DROPPED = "deduplicated"
"""The counter of dropped records."""
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_LONGEST = 32  # Fixed: bytes of an identity that is stored as it is; state depends on it


class Deduplicated(Computation):
    """The computation that passes on the first of equal records and drops those within the horizon
    of it. Built by :func:`deduplicated`."""

    seen: MapState[bytes, int]

    def __init__(self, spec: DeduplicateSpec, outputs: tuple[str, ...]) -> None:
        self._identity = _identity_of(spec.fields)
        self._outputs = outputs

    def process_record(self, ctx: Context, record: Record) -> None:
        """Pass on one record, or count it."""
        identity = self._identity(record.value)
        if identity in self.seen:
            ctx.count(DROPPED)
            return
        self.seen[identity] = record.timestamp
        for stream in self._outputs:
            ctx.produce(stream, record.value)


def deduplicated(spec: DeduplicateSpec, outputs: tuple[str, ...]) -> Deduplicated:
    """The computation for a spec. Its state lives for the horizon."""
    seen: MapState[bytes, int] = MapState(int, ttl=spec.within_us)
    seen.name = "seen"
    kind = type("Deduplicated", (Deduplicated,), {"seen": seen})
    computation: Deduplicated = kind(spec, outputs)
    return computation


def _identity_of(fields: tuple[str, ...]) -> Callable[[Any], bytes]:
    readers = [field_reader(name) for name in fields]

    def identity(value: Any) -> bytes:
        data = _encode([read(value) for read in readers] if readers else value)
        return data if len(data) <= _LONGEST else xxhash.xxh3_128_digest(data)

    return identity


REPEATED = "repeated_changes"
"""The counter of change events that were old, so that they changed nothing."""


class Tabled(Computation):
    """The computation that passes on the changes of the row of a key: a retraction of the former
    row, and the new one."""

    kept: ValueState[Kept] = ValueState(Kept)
    rows: MapState[bytes, Kept] = MapState(Kept)

    def __init__(self, spec: TableSpec, outputs: tuple[str, ...]) -> None:
        self._beside = frozenset(spec.beside)
        self._outputs = outputs

    def process_record(self, ctx: Context, record: Record) -> None:
        """Apply one part of a change event."""
        change, row = split(record.value)
        outcome = self._outcome(change, row)
        if outcome.repeated:
            ctx.count(REPEATED)
        for stream in self._outputs:
            for gone in outcome.gone:
                ctx.produce(stream, retracted(gone))
            for new in outcome.new:
                ctx.produce(stream, new)

    def _outcome(self, change: ChangePart, row: dict[str, Any]) -> TableOutcome:
        if change.identified_by is IdentifiedBy.NOTHING:
            return passed(change, row)
        if change.identified_by is IdentifiedBy.KEY:
            state = self.kept.get() or Kept()
            outcome = applied(state, change, row, self._beside)
            self.kept.set(state)
            return outcome
        name = identity(row, self._beside)
        state = self.rows.get(name) or Kept()
        outcome = applied(state, change, row, self._beside)
        self.rows[name] = state
        return outcome
