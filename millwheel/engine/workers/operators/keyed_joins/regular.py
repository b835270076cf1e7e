"""The join of all records of two streams with equal keys, whenever they come.

Each stream is a multiset of rows per key. The changes that a record makes to the result are emitted
at once: new rows, and rows that are taken back. A row notes whether it stands alone in the result
(``left``, …), so that only emitted rows are taken back, also where rows are forgotten.

A retraction may come before the record that it takes back, because the two may travel by different
ways. Until that record comes, the row counts minus one: so the rows, folded, are the same in either
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import xxhash

from millwheel.api import Context, MapHandle, MapState, ValueHandle, ValueState
from millwheel.core.formats.codec import MOST_NESTING, decode_value, encode_value, nests_too_deeply
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Record
from millwheel.core.model.times import LAST_TIME, MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec
from millwheel.core.pipeline.work import JoinKind, RegularJoinSpec
from millwheel.core.windows.panes import as_retraction, retracted
from millwheel.engine.workers.operators.keyed_joins.interval import NearRow
from millwheel.engine.workers.operators.record_joins import ordered, plain
from millwheel.engine.workers.operators.suspension import RESULT_BYTES, Cursor, Suspending
from millwheel.engine.workers.state.stored_types import Certain

FORGOTTEN = "forgotten"
"""The counter of retractions of rows that are no longer kept."""
_LEFT, _RIGHT = 0, 1
_FEW = 8
"""Rows of a key that lie in one entry with their count; more of them would make each new row of a
busy key expensive."""
_SHORT = 1_000  # bytes of such a row: with eight of them an entry still fits into a page of disk
_BEGINS, _OTHERS_BEFORE, _PAIRS, _OTHERS_AFTER = range(4)
"""The steps of a record. It makes pairs with the rows of the other stream; before or after that,
these begin or cease to stand alone."""
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_LONGEST = 32  # Fixed: bytes of a row that names itself; state depends on it


class Row(Certain, array_like=True):
    """Equal rows of a key: their value as ``data``, and of each its time (µs), and whether it
    stands alone in the result. ``owed``: they are retractions, and wait for the records that they
    take back."""

    data: bytes
    times: list[int]
    alone: list[bool]
    owed: bool = False


class Side(Certain, array_like=True):
    """The rows of a key of one stream: their number, less that of retractions; a ``few`` of them by
    identity; and the number of entries of the others."""

    count: int = 0
    few: dict[bytes, Row] = msgspec.field(default_factory=dict)
    entries: int = 0


NULL = encode_value(None)
Shows = Callable[[bool], bool]
"""Whether a row stands alone in the result, by whether it has a partner."""


def _never(met: bool) -> bool:
    return False


def _without(met: bool) -> bool:
    return not met


def _with(met: bool) -> bool:
    return met


def _showing(kind: JoinKind) -> tuple[Shows, Shows]:
    """The rule for the rows of either stream."""
    if kind is JoinKind.SEMI:
        return _with, _never
    first, second = (_without if alone else _never for alone in kind.without_partner)
    return first, second


class JoinArrival(NamedTuple):
    """A record as a change of its side: one more row (``sign`` 1) or one less (-1), by the row's
    identity and encoded value. ``row``: those that equal it; one of them goes if it ``settles``."""

    sign: int
    side: int
    identity: bytes
    data: bytes
    row: Row | None
    settles: bool


class StoredSides(Suspending):
    """The rows of a key, by stream. ``_sides`` are those of the current key, to change in place."""

    left: ValueState[Side]
    right: ValueState[Side]
    lefts: MapState[bytes, Row]
    rights: MapState[bytes, Row]

    def __init__(self, spec: RegularJoinSpec, inputs: Sequence[InputSpec]) -> None:
        self._forgets = tuple(ttl is not None for ttl in spec.ttls_us)
        self._names = tuple(each.stream for each in inputs)
        self._sides: tuple[Side, ...] = Side(), Side()

    def _stored_sides(self) -> tuple[Side, ...]:
        """The sides of the current key. One without rows has no entry, and reading writes none."""
        return tuple(self._side(side).get() or Side() for side in range(len(self._names)))

    def _store(self, side: int) -> None:
        """Write a side of the current key. That lengthens its life."""
        own = self._sides[side]
        if own.count or own.few or own.entries:
            self._side(side).set(own)
        else:
            self._side(side).clear()

    def _found(self, side: int, identity: bytes) -> Row | None:
        own = self._sides[side]
        if (row := own.few.get(identity)) is not None:
            return row
        found: Row | None = (
            self._rows(side).get(identity) if own.entries or self._forgets[side] else None
        )
        return found

    def _all(self, side: int) -> Iterable[tuple[bytes, Row]]:
        own = self._sides[side]
        rows = [*own.few.items()]
        if own.entries or self._forgets[side]:
            rows += self._rows(side).items()
        return rows

    def _from(self, side: int, cursor: Cursor) -> Iterator[tuple[bytes, Row]]:
        """The rows of a side from where a cursor is, which goes with them."""
        own = self._sides[side]
        few = [*own.few.items()]
        while cursor.few < len(few):
            yield few[cursor.few]
            cursor.few += 1
        if own.entries or self._forgets[side]:
            rows: Any = self._rows(side)  # its handle has more methods than the API
            for identity, row in rows.behind(cursor.entry):
                yield identity, row
                cursor.entry = identity

    def _put(self, side: int, identity: bytes, row: Row) -> None:
        own = self._sides[side]
        if self._forgets[side]:  # each row has a time to live of its own
            self._rows(side)[identity] = row
        elif identity in own.few:  # it was changed in place
            return
        elif own.entries and identity in self._rows(side):
            self._rows(side)[identity] = row
        elif len(own.few) < _FEW and len(row.data) <= _SHORT:
            own.few[identity] = row
        else:
            own.entries += 1
            self._rows(side)[identity] = row

    def _drop(self, side: int, identity: bytes) -> None:
        own = self._sides[side]
        if own.few.pop(identity, None) is None:
            del self._rows(side)[identity]
            own.entries -= not self._forgets[side]

    def _side(self, side: int) -> ValueHandle[Side]:
        return self.left if side == _LEFT else self.right

    def _rows(self, side: int) -> MapHandle[bytes, Row]:
        return self.lefts if side == _LEFT else self.rights


class RegularJoined(StoredSides):
    """A join of all records of two streams. See the head of this file. Built by
    :func:`regular_join`."""

    def __init__(
        self,
        spec: RegularJoinSpec,
        inputs: Sequence[InputSpec],
        outputs: Sequence[str],
        fields: Sequence[Sequence[str]] = ((), ()),
    ) -> None:
        """``fields``: those that either stream declares, in their order."""
        super().__init__(spec, inputs)
        self._shows = _showing(spec.kind)
        self._in_pairs = spec.kind.in_pairs
        self._head = inputs[0].key.naming()
        self._outputs = tuple(outputs)
        self._fields = tuple(map(tuple, fields))

    def go_on(self, ctx: Any, record: Record, cursor: Cursor) -> bool:
        """Add a row, or take one back."""
        at = record.timestamp
        if cursor.step == _OTHERS_AFTER:
            self._sides, side = self._stored_sides(), self._names.index(record.stream)
            done = self._update_others(ctx, side, at, cursor)
        else:
            arrived = self._arrived(ctx, record)
            if arrived is None:
                return True
            side = arrived.side
            take = self._take if arrived.sign > 0 else self._take_back
            done = take(ctx, arrived, at, cursor)
        self._store(side)
        return done

    def row_of(self, side: int, record: Record) -> NearRow:
        """The row of a record, which is not a retraction, for columns."""
        data = encode_value(ordered(plain(record.value), self._fields[side]))
        return NearRow(record.timestamp, MIN_TIME, MAX_TIME, LAST_TIME, data)

    def keep(self, ctx: Context, side: int, rows: list[NearRow]) -> None:
        """Keep rows that were kept elsewhere, where all of their results have been emitted."""
        own = self._side(side).get() or Side()
        self._sides = (own, Side()) if side == _LEFT else (Side(), own)
        own.count += len(rows)
        for each in rows:
            identity = identity_of(decode_value(each.data))
            row = self._found(side, identity) or Row(each.data, [], [])
            if row.owed:
                self._settle(ctx, side, identity, row, each.at)
                continue
            row.times.append(each.at)
            row.alone.append(self._shows[side](each.met))
            self._put(side, identity, row)
        self._store(side)

    def rows_of(
        self, ctx: Any, side: int, keys: Sequence[Key], most: int
    ) -> Iterator[tuple[int, list[Row] | None]]:
        """The rows of a side of some keys, by the number of the key; None where they have more than
        ``most`` entries."""
        state: Any = self._side(side)  # its handle has more methods than the API
        for number, own in state.values_of(keys):
            if own.entries > most:
                yield number, None
                continue
            rows = [*own.few.values()]
            if own.entries:
                ctx.point(keys[number], MIN_TIME)
                rows += (row for _, row in self._rows(side).items())
            yield number, rows

    def with_partners(
        self, side: int, by_key: Mapping[Key, Sequence[Sequence[NearRow]]]
    ) -> set[Key]:
        """The keys whose rows of a side, which were kept elsewhere, have partners there or here;
        none where that makes no difference."""
        if self._shows[side] is _never:
            return set()
        keys = {key for key, rows in by_key.items() if rows[1 - side]}
        asked = [key for key, rows in by_key.items() if rows[side] and key not in keys]
        state: Any = self._side(1 - side)  # its handle has more methods than the API
        return keys | {asked[number] for number, own in state.values_of(asked) if own.count > 0}

    def decides(self, side: int, rows: Iterable[Row], met: bool) -> bool:
        """Whether new records of a key with these rows go by rows: some row is owed or too deep, or
        is noted as one without a partner where one comes (``met``)."""
        shown = self._shows[side](True)
        return any(
            row.owed
            or self.is_deep(row.data)
            or (met and any(alone != shown for alone in row.alone))
            for row in rows
        )

    def is_deep(self, data: bytes) -> bool:
        """Whether a value nests too deeply for a pair, which then becomes a dead letter."""
        return nests_too_deeply(data, MOST_NESTING - 1)

    def produce_alone(self, ctx: Context, side: int, data: bytes, at: int, weight: int) -> None:
        """Emit an encoded record of the current key on its own; a negative ``weight`` takes it
        back."""
        self._produce_alone(ctx, side, data, at, weight)

    def kept(self) -> Iterator[tuple[int, int, bytes]]:
        """Side, time and encoded value of each row of the current key. For tests."""
        self._sides = self._stored_sides()
        for side in (_LEFT, _RIGHT):
            for _, row in self._all(side):
                value = retracted(decode_value(row.data)) if row.owed else decode_value(row.data)
                yield from ((side, at, _encode(value)) for at in row.times)

    def produce_pair(self, ctx: Context, left: bytes, right: bytes, at: int) -> None:
        """Emit the pair of two encoded records of the current key."""
        self._produce_pair(ctx, _LEFT, left, right, at, 1)

    def _arrived(self, ctx: Context, record: Record) -> JoinArrival | None:
        """The change that a record makes; None where the row that it takes back may be
        forgotten."""
        self._sides = self._stored_sides()
        back = as_retraction(record.value)
        value = plain(record.value if back is None else back.value)
        sign, side = 1 if back is None else -1, self._names.index(record.stream)
        identity = identity_of(value)
        row = self._found(side, identity)
        settles = row is not None and row.owed == (sign > 0)
        if sign < 0 and not settles and self._forgets[side]:
            ctx.count(FORGOTTEN)
            return None
        data = encode_value(ordered(value, self._fields[side])) if row is None else row.data
        return JoinArrival(sign, side, identity, data, row, settles)

    def _take(self, ctx: Any, arrived: JoinArrival, at: int, cursor: Cursor) -> bool:
        """Add a row; what it removes from the result is emitted first. Whether all is emitted."""
        if cursor.step == _BEGINS:
            cursor.begin(_OTHERS_BEFORE if self._recount(arrived.side, 1) else _PAIRS)
        if cursor.step == _OTHERS_BEFORE:
            if not self._update_others(ctx, arrived.side, at, cursor):
                return False
            cursor.begin(_PAIRS)
        if not self._pair(ctx, arrived, at, cursor):
            return False
        self._write_row(ctx, arrived, at)
        return True

    def _take_back(self, ctx: Any, arrived: JoinArrival, at: int, cursor: Cursor) -> bool:
        """Remove a row. Whether all is emitted."""
        if not self._pair(ctx, arrived, at, cursor):
            return False
        self._write_row(ctx, arrived, at)
        if not self._recount(arrived.side, -1):
            return True
        cursor.begin(_OTHERS_AFTER)
        return self._update_others(ctx, arrived.side, at, cursor)

    def _pair(self, ctx: Any, arrived: JoinArrival, at: int, cursor: Cursor) -> bool:
        """Emit the pairs of a row that comes or goes. Whether all are emitted."""
        if not self._in_pairs:
            return True
        sign, side, _, data, _, _ = arrived
        for _, partner in self._from(1 - side, cursor):
            weight = -sign if partner.owed else sign
            bytes_of_each = len(data) + len(partner.data) + RESULT_BYTES
            for its in partner.times[cursor.times :] if cursor.times else partner.times:
                if ctx.suspension.room <= 0:
                    return False
                ctx.suspension.room -= bytes_of_each
                self._produce_pair(ctx, side, data, partner.data, max(its, at), weight)
                cursor.times += 1
            cursor.times = 0
        return True

    def _write_row(self, ctx: Context, arrived: JoinArrival, at: int) -> None:
        sign, side, identity, data, row, settles = arrived
        if settles:
            assert row is not None
            self._settle(ctx, side, identity, row, at)
        else:
            self._keep(ctx, side, identity, row or Row(data, [], [], sign < 0), at)

    def _keep(self, ctx: Context, side: int, identity: bytes, row: Row, at: int) -> None:
        """Add one of equal rows."""
        shows = self._shows[side]
        alone = shows is not _never and shows(self._sides[1 - side].count > 0)
        if alone:
            self._produce_alone(ctx, side, row.data, at, -1 if row.owed else 1)
        row.times.append(at)
        row.alone.append(alone)
        self._put(side, identity, row)

    def _settle(self, ctx: Context, side: int, identity: bytes, row: Row, at: int) -> None:
        """Remove one of equal rows: that of the same time if there is one."""
        index = row.times.index(at) if at in row.times else 0
        row.times.pop(index)
        if row.alone.pop(index):
            self._produce_alone(ctx, side, row.data, at, 1 if row.owed else -1)
        if row.times:
            self._put(side, identity, row)
        else:
            self._drop(side, identity)

    def _recount(self, side: int, change: int) -> bool:
        """Count one row of a side more or less. Whether the rows of the other begin or cease to
        stand alone."""
        own = self._sides[side]
        before = own.count
        own.count = before + change
        if self._forgets[side] and change < 0:  # rows may have been forgotten since
            own.count = sum(len(row.times) for _, row in self._all(side))
        return self._shows[1 - side] is not _never and (before > 0) != (own.count > 0)

    def _update_others(self, ctx: Any, side: int, at: int, cursor: Cursor) -> bool:
        """Emit the rows of the other side that begin to stand alone, or take back those that cease
        to. Whether all are emitted."""
        other = 1 - side
        alone = self._shows[other](self._sides[side].count > 0)
        for identity, row in self._from(other, cursor):
            if all(was == alone for was in row.alone):
                continue
            for index, (was, its) in enumerate(zip(row.alone, row.times, strict=True)):
                if was == alone:
                    continue
                if ctx.suspension.room <= 0:
                    self._put(other, identity, row)
                    return False
                ctx.suspension.room -= len(row.data) + RESULT_BYTES
                weight = -1 if row.owed is alone else 1
                self._produce_alone(ctx, other, row.data, max(its, at), weight)
                row.alone[index] = alone
            self._put(other, identity, row)
        return True

    # --- results ----------------------------------------------------------------------------------

    def _produce_alone(self, ctx: Context, side: int, data: bytes, at: int, weight: int) -> None:
        if self._in_pairs:
            self._produce_pair(ctx, side, data, NULL, at, weight)
        else:
            value = decode_value(data) if weight < 0 else msgspec.Raw(data)
            self._produce(ctx, value, at, weight)

    def _produce_pair(
        self, ctx: Context, side: int, data: bytes, partner: bytes, at: int, weight: int
    ) -> None:
        left, right = (data, partner) if side == _LEFT else (partner, data)
        row = self._head(ctx.key)
        row[self._names[_LEFT]], row[self._names[_RIGHT]] = msgspec.Raw(left), msgspec.Raw(right)
        self._produce(ctx, row, at, weight)

    def _produce(self, ctx: Context, row: Any, at: int, weight: int) -> None:
        value = row if weight > 0 else retracted(row)
        for stream in self._outputs:
            ctx.produce(stream, value, at)


def regular_join(
    spec: ComputationSpec, fields: Sequence[Sequence[str]] = ((), ())
) -> RegularJoined:
    """The computation for a spec. The rows of either stream live for its ``ttl``."""
    work = spec.work_as(RegularJoinSpec)
    states: dict[str, Any] = {}
    for side, ttl in zip(("left", "right"), work.ttls_us, strict=True):
        states[f"{side}s"] = MapState(bytes, Row, ttl=ttl)
        states[side] = ValueState(Side, ttl=ttl)
    kind = type("RegularJoined", (RegularJoined,), states)
    computation: RegularJoined = kind(work, spec.inputs, spec.outputs, fields)
    return computation


def identity_of(value: Any) -> bytes:
    """The name of a row among those of its key and stream: its value, or a hash of that."""
    data = _encode(value)
    return data if len(data) <= _LONGEST else xxhash.xxh3_128_digest(data)
