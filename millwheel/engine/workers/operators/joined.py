"""Joins and enrichment as Computations, so that they share the windows, bundles, retries and dead
letters of callbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from xxhash import xxh3_128_digest

from millwheel.api import Computation, Context, MapState, ValueState
from millwheel.connect.own_functions import language_of
from millwheel.core.aggregates.families.rows import content
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Record
from millwheel.core.pipeline.graph import takes_back
from millwheel.core.pipeline.joins import (
    Version,
    WindowSide,
    combinations,
    come_since,
    gone_since,
    known,
    newer,
)
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec
from millwheel.core.pipeline.work import EnrichSpec, JoinKind, JoinSpec, Missing
from millwheel.core.ranked.latest import Located, deletion
from millwheel.core.tables.planning import declared_name
from millwheel.core.windows.panes import as_retraction, retracted
from millwheel.core.windows.windows import Window
from millwheel.engine.workers.state.stored_types import Certain
from millwheel.errors import RecordError

UNMATCHED = "unmatched"
"""The counter of records that are dropped because nothing enriches them."""


class Joined(Computation):
    """Every two records of a window and key, one of each stream; of several streams, all
    combinations. Stateless: the windows keep the records."""

    def __init__(
        self,
        kind: JoinKind,
        inputs: Sequence[InputSpec],
        outputs: Sequence[str],
        fields: Sequence[tuple[str, ...]] = (),
    ) -> None:
        """``fields``: those that each stream declares, in their order."""
        self._kind = kind
        self._streams = tuple(each.stream for each in inputs)
        self._fields = tuple(fields) or ((),) * len(self._streams)
        self._head = inputs[0].key.naming()
        self._outputs = tuple(outputs)

    def process_window(
        self, ctx: Context, key: Key, window: Window, records: Sequence[Record]
    ) -> None:
        """The window has closed."""
        for row in self.rows(key, window, *self._sides(records)):
            self._produce(ctx, row)

    def change(self, ctx: Context, key: Key, window: Window, sides: Sequence[WindowSide]) -> None:
        """The window has fired before, and has other records now."""
        gone = list(self._rows(key, window, gone_since(sides, self._kind)))
        come: Iterable[Any] = self._rows(key, window, come_since(sides, self._kind))
        if any(side.gone for side in sides):  # a record went, and another is as good
            gone, come = without_common(gone, list(come))
        for row in gone:
            self._produce(ctx, retracted(row))
        for row in come:
            self._produce(ctx, row)

    def take_back(self, ctx: Context, key: Key, window: Window, records: Sequence[Record]) -> None:
        """The window has fired with these records, and is another one now, or none."""
        for row in self.rows(key, window, *self._sides(records)):
            self._produce(ctx, retracted(row))

    def _sides(self, records: Sequence[Record]) -> list[list[Any]]:
        return [
            [record.value for record in records if record.stream == stream]
            for stream in self._streams
        ]

    def _produce(self, ctx: Context, row: Any) -> None:
        for stream in self._outputs:
            ctx.produce(stream, row)

    def rows(self, key: Key, window: Window, *sides: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """The results of a window that has closed, by the values of each stream in their order."""
        return self._rows(key, window, combinations(sides, self._kind))

    def _rows(
        self, key: Key, window: Window, matches: Iterable[tuple[Any, ...]]
    ) -> Iterator[dict[str, Any]]:
        if not self._kind.in_pairs:
            yield from (plain(ordered(values[0], self._fields[0])) for values in matches)
            return
        head = self._head(key)
        head["window_start"], head["window_end"] = window
        streams, fields = self._streams, self._fields
        for values in matches:
            yield {**head, **dict(zip(streams, map(ordered, values, fields), strict=True))}


def without_common(gone: list[Any], come: list[Any]) -> tuple[list[Any], list[Any]]:
    """Rows without those that are in both lists."""
    both = Counter(map(_content, gone)) & Counter(map(_content, come))
    return _without(gone, Counter(both)), _without(come, both)


def _without(rows: list[Any], some: Counter[bytes]) -> list[Any]:
    left = []
    for row in rows:
        name = _content(row)
        if some[name] > 0:
            some[name] -= 1
        else:
            left.append(row)
    return left


def _content(row: Any) -> bytes:
    return content(plain(row))


def ordered(value: Any, fields: tuple[str, ...]) -> Any:
    """A value with its fields as columns have them: in the order of their declaration, the others
    by name. Whether records come in columns must make no difference."""
    if not fields or type(value) is not dict or tuple(value) == fields:
        return value
    names = (*fields, *sorted(value.keys() - fields))
    return {name: value[name] for name in names if name in value}


class HeldVersion(Version, Certain, array_like=True):
    """A version in state. It is never changed in place."""


class Enriched(Computation):
    """Adds to a record the latest value of another stream for its key. A value that is taken back,
    or that ``deletes`` holds for, is none from its time on."""

    version: ValueState[HeldVersion] = ValueState(HeldVersion)

    def __init__(
        self, spec: EnrichSpec, outputs: Sequence[str], deletes: Callable[[Any], Any] | None = None
    ) -> None:
        self._spec = spec
        self._outputs = tuple(outputs)
        self._deletes = deletes

    def process_record(self, ctx: Context, record: Record) -> None:
        """A new version, or a record to enrich."""
        if record.stream == self._spec.stream:
            self._learn(record)
            return
        fields = plain(record.value)
        found = self._found(ctx, record, fields)
        if found is not None:
            self._produce(ctx, {**fields, self._spec.name: found[0]})

    def _known(self) -> HeldVersion | None:
        """The version of the current key."""
        return self.version.get()

    def _keep(self, version: HeldVersion) -> None:
        self.version.set(version)

    def _produce(self, ctx: Context, row: Any) -> None:
        for stream in self._outputs:
            ctx.produce(stream, row)

    def _learn(self, record: Record) -> None:
        at, version, back = record.timestamp, self._known(), as_retraction(record.value)
        if back is not None:
            # Of the one in force alone: another has taken the place of any other, and holds.
            ends = version is not None and version.at <= at and _alike(version.value, back.value)
            if ends:
                self._keep(HeldVersion(at, None))
            return
        value = plain(record.value)
        if self._deletes is not None and self._deletes(value):
            value = None
        position = (record.channel, record.number) if isinstance(record, Located) else None
        if newer(at, version, position):
            self._keep(HeldVersion(at, value, position))

    def _found(self, ctx: Context, record: Record, fields: Any) -> list[Any] | None:
        """[the value that the record gets]; None if the record is dropped."""
        spec = self._spec
        if type(fields) is not dict:
            raise RecordError(
                f"enrich adds the field {spec.name!r}, and a {type(fields).__name__} has no fields"
            )
        value = known(self._known(), record.timestamp if spec.waits else None)
        if value is None and spec.missing is Missing.DROP:
            ctx.count(UNMATCHED)
            return None
        if value is None and spec.missing is Missing.DEAD_LETTER:
            of = spec.of or declared_name(spec.stream)
            raise RecordError(f"{of} has said nothing of {record.key!r} up to {record.timestamp}")
        return [value]


class EnrichedChanges(Enriched):
    """The same for records of which some take back earlier ones: what was made of such a record is
    taken back with the value that it got."""

    given: MapState[bytes, list[Any]] = MapState(list)
    """By records: [the value], or [] for one that was dropped, of each one that is not taken back,
    in order."""
    owed: MapState[bytes, int] = MapState(int)
    """By records: how many were taken back before they came."""

    def process_record(self, ctx: Context, record: Record) -> None:
        """A new version, a record to enrich, or one that takes back another."""
        if record.stream == self._spec.stream:
            self._learn(record)
            return
        back = as_retraction(record.value)
        fields = plain(record.value if back is None else back.value)
        name = xxh3_128_digest(content(fields))
        if back is None:
            self._add(ctx, record, fields, name)
        else:
            self._take_back(ctx, fields, name)

    def _add(self, ctx: Context, record: Record, fields: Any, name: bytes) -> None:
        owed = self.owed.get(name) or 0
        if owed > 1:
            self.owed[name] = owed - 1
        elif owed:
            del self.owed[name]
        if owed:
            return
        found = self._found(ctx, record, fields)
        self.given[name] = [*(self.given.get(name) or ()), found or []]
        if found is not None:
            self._produce(ctx, {**fields, self._spec.name: found[0]})

    def _take_back(self, ctx: Context, fields: Any, name: bytes) -> None:
        given = self.given.get(name)
        if not given:
            if self._spec.missing is Missing.DEAD_LETTER:
                raise RecordError("takes back a record that got nothing and is a dead letter")
            self.owed[name] = (self.owed.get(name) or 0) + 1
            return
        if len(given) > 1:
            self.given[name] = given[:-1]
        else:
            del self.given[name]
        for value in given[-1]:
            self._produce(ctx, retracted({**fields, self._spec.name: value}))


def _alike(one: Any, other: Any) -> bool:
    return bool(content(one) == _content(other))


def plain(value: Any) -> Any:
    """The fields of a typed object, as they are encoded; any other value as it is."""
    return decode_value(encode_value(value)) if isinstance(value, Struct) else value


def joined(spec: ComputationSpec, pipeline: PipelineSpec) -> Computation:
    """The computation of a spec with ``join`` and ``window``, or ``enrich``."""
    if isinstance(spec.work, JoinSpec):
        return Joined(spec.work.kind, spec.inputs, spec.outputs, declared_fields(spec, pipeline))
    work = spec.work_as(EnrichSpec)
    condition = language_of(pipeline).compile(work.delete).evaluate if work.delete else None
    deletes = deletion(condition) if work.upserts else None
    kind = EnrichedChanges if takes_back(spec, pipeline) else Enriched
    return kind(work, spec.outputs, deletes)


def declared_fields(spec: ComputationSpec, pipeline: PipelineSpec) -> list[tuple[str, ...]]:
    """The fields that the source of each input declares, in their order; none for others."""
    streams = [pipeline.stream(each.stream) for each in spec.inputs]
    return [() if stream.source is None else tuple(stream.fields) for stream in streams]
