"""Joins and enrichment as Computations, so that they share the windows, bundles, retries and dead
letters of callbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from math import prod
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from xxhash import xxh3_128_digest

from millwheel.api import Computation, Context, MapState, ValueState
from millwheel.connect.own_functions import language_of
from millwheel.core.aggregates.families.rows import content
from millwheel.core.formats.codec import MOST_NESTING, decode_value, encode_value, nests_too_deeply
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Record
from millwheel.core.pipeline.graph import takes_back
from millwheel.core.pipeline.joins import (
    Products,
    Version,
    WindowSide,
    come_since,
    gone_since,
    newer,
    tuples,
    value_at,
)
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec
from millwheel.core.pipeline.tables import declared_name
from millwheel.core.pipeline.work import EnrichSpec, JoinKind, JoinSpec, Missing
from millwheel.core.rows.latest import Located, deletion
from millwheel.core.windows.panes import as_retraction, retracted
from millwheel.core.windows.windows import Window
from millwheel.engine.workers.operators.suspension import (
    RESULT_BYTES,
    Cursor,
    Resumed,
    Suspending,
)
from millwheel.engine.workers.state.stored_types import Certain
from millwheel.errors import RecordError

UNMATCHED = "unmatched"
"""The counter of records that are dropped because nothing enriches them."""
_GOES, _COMES = 0, 1
"""The order in which a window emits retractions and results."""
_PART_BYTES = 16 << 10
"""Most bytes of the records of a waiting window in one entry: a few pages of disk."""
_NULL = msgspec.Raw(encode_value(None))
Values = tuple[bytes | None, ...]
"""A result by the encoded values of each stream, in their order."""
Named = Callable[[Values], Values]


class Firing(msgspec.Struct):
    """One firing of a ``window``: the encoded values of each stream that have gone, stayed and come
    since the last one. ``stored``: the bytes that stand for it, whose values are in a number of
    ``parts``."""

    window: Window
    sides: Sequence[WindowSide]
    parts: int = 0
    stored: bytes = b""


class PairProducer(Protocol):
    """The function that emits pairs of a window in columns."""

    def __call__(self, ctx: Any, firing: Firing, pairs: Sequence[Any], start: int) -> int | None:
        """Emit pairs from number ``start`` on while there is room; returns how many. None where
        they have no columns. Of a firing that is not ``stored`` none is emitted."""


class Joined(Suspending):
    """A join in windows: all pairs of records of one window and key, or all combinations of several
    streams. The windows keep the records. The results of a firing may span several commits: then it
    is stored with all of its records, so that the window may go on, or end, meanwhile, and the next
    firings of its key wait behind it."""

    counts_as = 100
    parts: MapState[int, bytes] = MapState(int, bytes)
    """The records of windows that wait, by number of the window and of the part."""
    produce_pairs: PairProducer | None = None

    def __init__(
        self,
        kind: JoinKind,
        inputs: Sequence[InputSpec],
        outputs: Sequence[str],
        fields: Sequence[tuple[str, ...]] = (),
    ) -> None:
        """``fields``: those that each stream declares, in their order."""
        self._kind = kind
        self._needs_all = kind in (JoinKind.INNER, JoinKind.SEMI)
        self._streams = tuple(each.stream for each in inputs)
        self._fields = tuple(fields) or ((),) * len(self._streams)
        self._head = inputs[0].key.naming()
        self._outputs = tuple(outputs)

    def process_window(
        self, ctx: Context, key: Key, window: Window, records: Sequence[Record]
    ) -> None:
        """Emit the results of a window that has closed."""
        sides = self._sides(records)
        if self._needs_all and not all(sides):  # as many do: their records are not even encoded
            return
        self._process_firing(ctx, window, [WindowSide((), (), side) for side in sides])

    def change(self, ctx: Context, key: Key, window: Window, sides: Sequence[WindowSide]) -> None:
        """Emit the changes of a window that has fired before, and has other records now."""
        self._process_firing(ctx, window, sides)

    def take_back(self, ctx: Context, key: Key, window: Window, records: Sequence[Record]) -> None:
        """Take back the results of a window that has fired with these records, and is another one
        now, or none."""
        self._process_firing(
            ctx, window, [WindowSide(side, (), ()) for side in self._sides(records)]
        )

    def rows(self, key: Key, window: Window, *sides: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """The results of a window that has closed, by the values of each stream in their order."""
        products = come_since([WindowSide((), (), side) for side in sides], self._kind)
        if not self._kind.in_pairs:
            for values in tuples(products):
                yield plain(ordered(values[0], self._fields[0]))
            return
        head, streams, fields = self._head_of(key, window), self._streams, self._fields
        for values in tuples(products):
            yield {**head, **dict(zip(streams, map(ordered, values, fields), strict=True))}

    # --- in parts ---------------------------------------------------------------------------------

    def go_on(self, ctx: Any, record: Record, cursor: Cursor) -> bool:
        """Emit retractions, and then results. ``cursor.times`` counts those of the current step."""
        firing: Firing = record.value
        gone, come = gone_since(firing.sides, self._kind), come_since(firing.sides, self._kind)
        if self.produce_pairs is not None and not gone and len(come) == 1:
            done = self._go_on_in_columns(ctx, firing, come[0], cursor)
            if done is not None:
                return done
        begins = cursor.step == _GOES and not cursor.times
        # a record went, and another is as good: only worth the look where all is in memory
        if begins and any(side.gone for side in firing.sides):
            if _bytes_of(gone) + _bytes_of(come) <= ctx.suspension.room:
                gone, come = without_common([*tuples(gone)], [*tuples(come)])
        head = self._head_of(ctx.key, firing.window)
        for step, products in ((_GOES, gone), (_COMES, come)):
            if cursor.step > step:
                continue
            for values in tuples(products, cursor.times):
                if ctx.suspension.room <= 0:
                    return False
                ctx.suspension.room -= sum(map(_length, values)) + RESULT_BYTES
                self._produce_result(ctx, head, values, step == _GOES)
                cursor.times += 1
            cursor.begin(step + 1)
        return True

    def _go_on_in_columns(
        self, ctx: Any, firing: Firing, pairs: list[Sequence[Any]], cursor: Cursor
    ) -> bool | None:
        """Emit pairs in columns where they are many, and have columns. These cannot be taken back,
        so the firing is stored first."""
        if not firing.stored and _bytes_of([pairs]) <= ctx.suspension.room:
            return None
        assert self.produce_pairs is not None
        start = cursor.times if cursor.step == _COMES else 0
        count = self.produce_pairs(ctx, firing, pairs, start)
        if count is None:
            return None
        cursor.step, cursor.times = _COMES, start + count
        return cursor.times == prod(map(len, pairs))

    def encode_waiting(self, number: int, value: Firing) -> bytes:
        """Encode a firing. Its records are written once, in parts: its cursor is rewritten each
        time."""
        if not value.stored:
            rows = [row for side in value.sides for some in _lists(side) for row in some]
            value.parts = 0
            for part in _in_parts(rows):
                self.parts[_part(number, value.parts)] = encode_value(part)
                value.parts += 1
            lengths = [[len(some) for some in _lists(side)] for side in value.sides]
            value.stored = encode_value([value.window, lengths, value.parts])
        return value.stored

    def decode_waiting(self, number: int, data: bytes) -> Firing:
        """Decode a firing and read its parts."""
        window, lengths, parts = decode_value(data)
        rows: list[bytes] = []
        for part in range(parts):
            rows += decode_value(self.parts[_part(number, part)])
        each = iter(rows)
        sides = [WindowSide(*([*islice(each, count)] for count in side)) for side in lengths]
        return Firing(Window(*window), sides, parts, data)

    def resumed(self, ctx: Any) -> Iterator[Resumed]:
        """See there. The parts of a firing that is complete, or has failed, are removed."""
        for each in super().resumed(ctx):
            yield each
            if each.number not in self.waiting:
                for part in range(each.value.parts):
                    del self.parts[_part(each.number, part)]

    def _process_firing(self, ctx: Any, window: Window, sides: Sequence[WindowSide]) -> None:
        encoded = [
            WindowSide(*[self._encoded(number, some) if some else () for some in _lists(side)])
            for number, side in enumerate(sides)
        ]
        self._check(encoded)
        self.process_record(ctx, Record(ctx.key, Firing(window, encoded), ctx.timestamp, ""))

    def _encoded(self, number: int, values: Sequence[Any]) -> list[bytes]:
        fields = self._fields[number]
        if not fields:
            return list(map(encode_value, values))
        return [encode_value(ordered(value, fields)) for value in values]

    def _sides(self, records: Sequence[Record]) -> list[list[Any]]:
        return [
            [record.value for record in records if record.stream == stream]
            for stream in self._streams
        ]

    def _head_of(self, key: Key, window: Window) -> dict[str, Any]:
        if not self._kind.in_pairs:
            return {}
        head = self._head(key)
        head["window_start"], head["window_end"] = window
        return head

    def _produce_result(
        self, ctx: Context, head: dict[str, Any], values: Values, back: bool
    ) -> None:
        if self._kind.in_pairs:
            raws = [_NULL if data is None else msgspec.Raw(data) for data in values]
            row: Any = {**head, **dict(zip(self._streams, raws, strict=True))}
        else:
            assert values[0] is not None
            row = decode_value(values[0]) if back else msgspec.Raw(values[0])
        for stream in self._outputs:
            ctx.produce(stream, retracted(row) if back else row)

    def _check(self, sides: Sequence[WindowSide]) -> None:
        """Raise RecordError if a result cannot be sent, before any other is durable: a window has
        all of its results, or a dead letter, which has its records as long as the window has
        them."""
        values = (data for side in sides for some in _lists(side) for data in some)
        if not self._kind.in_pairs or all(len(data) < MOST_NESTING for data in values):
            return
        products = gone_since(sides, self._kind), come_since(sides, self._kind)
        for data in chain.from_iterable(chain.from_iterable(chain.from_iterable(products))):
            if data is not None and nests_too_deeply(data, MOST_NESTING - 1):
                raise RecordError(f"a result nests more than {MOST_NESTING} levels deep")


def _lists(side: WindowSide) -> tuple[Sequence[Any], ...]:
    return side.gone, side.stay, side.come


def _length(data: bytes | None) -> int:
    return 1 if data is None else len(data)


def _bytes_of(products: Products) -> int:
    """About how many bytes results have."""
    total = 0
    for factors in products:
        count = prod(map(len, factors))
        for factor in factors:
            total += sum(map(_length, factor)) * (count // len(factor))
        total += RESULT_BYTES * count
    return total


def _part(number: int, part: int) -> int:
    return number << 32 | part


def _in_parts(rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for row in rows:
        if part and size + len(row) > _PART_BYTES:
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row)
    if part:
        yield part


def without_common(gone: Sequence[Values], come: Sequence[Values]) -> tuple[Products, Products]:
    """Results without those that are in both lists."""
    names: dict[bytes | None, bytes] = {None: b""}

    def named(values: Values) -> Values:
        for data in values:
            if data is not None and data not in names:
                names[data] = content(decode_value(data))
        return tuple(names[data] for data in values)

    both = Counter(map(named, gone)) & Counter(map(named, come))
    return _without(gone, both.copy(), named), _without(come, both, named)


def _without(rows: Sequence[Values], some: Counter[Values], named: Named) -> Products:
    left: Products = []
    for row in rows:
        name = named(row)
        if some[name] > 0:
            some[name] -= 1
        else:
            left.append([[each] for each in row])
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
    """The computation that adds to a record the latest value of another stream for its key. A
    retraction, or a value for which ``deletes`` holds, ends the one in force at its time."""

    version: ValueState[HeldVersion] = ValueState(HeldVersion)

    def __init__(
        self,
        spec: EnrichSpec,
        outputs: Sequence[str],
        deletes: Callable[[Any], Any] | None = None,
        declared: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        self._spec = spec
        self._outputs = tuple(outputs)
        self._deletes = deletes
        self._declared = declared

    def process_record(self, ctx: Context, record: Record) -> None:
        """Keep a new version, or enrich a record."""
        if record.stream == self._spec.stream:
            self._update_version(record)
            return
        fields = self._in_order(record.stream, plain(record.value))
        version = self._found(ctx, record, fields)
        if version is not None:
            self._produce(ctx, {**fields, self._spec.name: version[0]})

    def go_on(self, value: Any, at: int) -> None:
        """Keep a version of the current key that was kept elsewhere."""
        self._keep(HeldVersion(at, value))

    def _in_order(self, stream: str, value: Any) -> Any:
        return ordered(value, self._declared.get(stream, ()))

    def _current_version(self) -> HeldVersion | None:
        """The version of the current key."""
        return self.version.get()

    def _keep(self, version: HeldVersion) -> None:
        self.version.set(version)

    def _produce(self, ctx: Context, row: Any) -> None:
        for stream in self._outputs:
            ctx.produce(stream, row)

    def _update_version(self, record: Record) -> None:
        at, version, back = record.timestamp, self._current_version(), as_retraction(record.value)
        if back is not None:
            # Only the one in force ends: any other has been replaced already.
            ends = version is not None and version.at <= at and _alike(version.value, back.value)
            if ends:
                self._keep(HeldVersion(at, None))
            return
        value = self._in_order(record.stream, plain(record.value))
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
        value = value_at(self._current_version(), record.timestamp if spec.waits else None)
        if value is None and spec.missing is Missing.DROP:
            ctx.count(UNMATCHED)
            return None
        if value is None and spec.missing is Missing.DEAD_LETTER:
            of = spec.of or declared_name(spec.stream)
            raise RecordError(f"{of} has no value for {record.key!r} up to {record.timestamp}")
        return [value]


class EnrichedChanges(Enriched):
    """The same for streams with retractions: the result of a record is taken back with the value
    that it got."""

    given: MapState[bytes, list[Any]] = MapState(list)
    """By record: [the value], or [] for a dropped one, of each that is not taken back, in order."""
    owed: MapState[bytes, int] = MapState(int)
    """By record: how many were taken back before they came."""

    def process_record(self, ctx: Context, record: Record) -> None:
        """Keep a new version, enrich a record, or take one back."""
        if record.stream == self._spec.stream:
            self._update_version(record)
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
        version = self._found(ctx, record, fields)
        self.given[name] = [*(self.given.get(name) or ()), version or []]
        if version is not None:
            self._produce(ctx, {**fields, self._spec.name: version[0]})

    def _take_back(self, ctx: Context, fields: Any, name: bytes) -> None:
        versions = self.given.get(name)
        if not versions:
            if self._spec.missing is Missing.DEAD_LETTER:
                raise RecordError("takes back a record that got nothing and is a dead letter")
            self.owed[name] = (self.owed.get(name) or 0) + 1
            return
        if len(versions) > 1:
            self.given[name] = versions[:-1]
        else:
            del self.given[name]
        for value in versions[-1]:
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
    streams = [each.stream for each in spec.inputs]
    declared = dict(zip(streams, declared_fields(spec, pipeline), strict=True))
    return kind(work, spec.outputs, deletes, declared)


def declared_fields(spec: ComputationSpec, pipeline: PipelineSpec) -> list[tuple[str, ...]]:
    """The fields that the source of each input declares, in their order; none for others."""
    streams = [pipeline.stream(each.stream) for each in spec.inputs]
    return [() if stream.source is None else tuple(stream.fields) for stream in streams]
