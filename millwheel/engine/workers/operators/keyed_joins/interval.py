"""The join of records of two streams with equal keys that lie near each other in time.

The partners of a record lie between two times, and it is kept until the watermark has passed the
second: no partner can come on time after that. A pair is emitted when its second record comes. A
record without a partner is emitted, where the kind of join asks for that, when it is removed.

The records of a key come together, so its state is read and written once a bundle. A few rows of a
stream lie in one entry; more of them become segments. A segment is written once, is not read for
records that none of its rows can meet, and is removed as a whole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

from millwheel.api import Context, MapHandle, MapState, ValueState
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.records import Record, Timer
from millwheel.core.model.times import LAST_TIME, MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec
from millwheel.core.pipeline.work import BoundSpec, IntervalJoinSpec, JoinKind
from millwheel.core.windows.lateness import is_behind
from millwheel.engine.workers.operators.record_joins import ordered, plain
from millwheel.engine.workers.operators.suspension import (
    LEAST_BYTES,
    RESULT_BYTES,
    Cursor,
    Resumed,
    Suspending,
)
from millwheel.engine.workers.state.stored_types import Certain
from millwheel.errors import RecordError

_LEFT, _RIGHT = 0, 1
_FEW = 64
"""Rows of a stream that lie in the entry of their key: each bundle with the key writes them
again."""
_FEW_BYTES = 32 << 10
"""Most bytes of them, likewise."""
_SEGMENT_BYTES = 1 << 20
"""Most bytes of a segment, which is read as a whole."""
_AT_ONCE = 64
"""Partners that a record meets between two checks for room."""


_UNSEEN = 16
"""The bound of the results of a bundle, in multiples of its room, from which on they are counted:
that takes a fifth of the time of a hot key."""


class NearRow(Certain, array_like=True):
    """A record: its time, the first and last time (µs) of a partner, its value, and whether it has
    found one. It is removed once the watermark has passed ``end``."""

    at: int
    first: int
    last: int
    end: int
    data: bytes
    met: bool = False


class NearSegment(Certain, array_like=True):
    """The summary of a segment, which saves reading it. Its rows are in the order of their times,
    from ``first`` to ``last``. All of them can be removed at ``end``; at ``waits`` the first row
    without a partner has to be emitted (MAX_TIME: none). ``count`` is their number, ``size`` the
    bytes of their values."""

    first: int
    last: int
    end: int
    waits: int
    count: int
    size: int


class NearSide(Certain, array_like=True):
    """The rows of a key of one stream: a few of them, segments by their numbers, the next number,
    and the time of its timer."""

    rows: list[NearRow] = msgspec.field(default_factory=list)
    segments: dict[int, NearSegment] = msgspec.field(default_factory=dict)
    number: int = 0
    wakes_us: int = MAX_TIME


_NULL = encode_value(None)
_time_of = attrgetter("at")
Bound = Callable[[Any], Any]


class IntervalJoined(Suspending):
    """A join of records that lie near each other in time. See the head of this file."""

    left: ValueState[NearSide] = ValueState(NearSide)
    right: ValueState[NearSide] = ValueState(NearSide)
    lefts: MapState[int, list[NearRow]] = MapState(int, list[NearRow])
    rights: MapState[int, list[NearRow]] = MapState(int, list[NearRow])

    def __init__(
        self,
        spec: IntervalJoinSpec,
        inputs: Sequence[InputSpec],
        outputs: Sequence[str],
        compile_expression: Callable[[str], Any],
        fields: Sequence[Sequence[str]] = ((), ()),
    ) -> None:
        """``fields``: those that either stream declares, in their order."""
        self._kind = spec.kind
        self._alone = spec.kind.without_partner
        self._in_pairs = spec.kind.in_pairs
        self._apart = (spec.before_us, spec.after_us), (spec.after_us, spec.before_us)
        self._names = tuple(each.stream for each in inputs)
        self._head = inputs[0].key.naming()
        self._outputs = tuple(outputs)
        self._fields = tuple(map(tuple, fields))
        self._candidates = 0
        """Pairs of rows that the current call has looked at."""

        def compiled(bounds: Sequence[BoundSpec], stream: str) -> list[Bound]:
            own = (each for each in bounds if each.stream == stream)
            return [compile_expression(each.expression).evaluate for each in own]

        self._froms = [compiled(spec.froms, name) for name in self._names]
        self._untils = [compiled(spec.untils, name) for name in self._names]

    def process_batch(self, ctx: Any, records: Sequence[Record]) -> None:
        """Join the records of a key."""
        if ctx.suspension.has(ctx.key) or type(records[0]) is Resumed:
            for record in records:
                self.process_record(ctx, record)
            return
        new: tuple[list[NearRow], list[NearRow]] = ([], [])
        for record in records:
            side = self._names.index(record.stream)
            new[side].append(self.row_of(side, record))
        for rows in new:
            rows.sort(key=_time_of)
        if not self._fits(ctx, new):
            for record in records:
                self.process_record(ctx, record)
            return
        self._candidates = 0
        for side in (_LEFT, _RIGHT):
            if new[side]:
                self._meet(ctx, side, new[side], self._kept(ctx, 1 - side, new[side]))
        if new[_LEFT] and new[_RIGHT]:
            self._meet(ctx, _LEFT, new[_LEFT], [new[_RIGHT]])
        for side in (_LEFT, _RIGHT):
            if new[side]:
                self._keep(ctx, side, new[side])
        if self._candidates:
            longest = max([len(row.data) for rows in new for row in rows])
            ctx.suspension.room -= self._candidates * (2 * longest + RESULT_BYTES)

    def go_on(self, ctx: Any, record: Record, cursor: Cursor) -> bool:
        """Go on with one record: ``cursor`` counts lists of rows, and rows of the next; ``step``:
        it has met a partner."""
        side = self._names.index(record.stream)
        row = self.row_of(side, record)
        row.met = bool(cursor.step)
        lists = self._kept(ctx, 1 - side, [row])
        for others in islice(lists, cursor.lists, None):
            start, stop = _reach(row, others)
            for index in range(start + cursor.times, stop, _AT_ONCE):
                if ctx.suspension.room <= 0:
                    cursor.step = int(row.met)
                    return False
                some = others[index : min(index + _AT_ONCE, stop)]
                bytes_of_each = len(row.data) + len(some[0].data) + RESULT_BYTES
                ctx.suspension.room -= len(some) * bytes_of_each
                self._pair(ctx, side, [row], some)
                cursor.times += len(some)
            cursor.lists, cursor.times = cursor.lists + 1, 0
        self._keep(ctx, side, [row])
        return True

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        """Emit and remove the rows that are due."""
        side = int(timer.tag)
        own = self._side(side)
        own.wakes_us = MAX_TIME
        for number, segment in list(own.segments.items()):
            if is_behind(segment.waits, ctx.watermark):
                rows = self._segments(side)[number]
                self._part(ctx, side, rows)
                segment.waits = self._waits(side, rows)
        self._part(ctx, side, own.rows)
        self._clean(ctx, side, own)
        self._put(ctx, side, own)

    def row_of(self, side: int, record: Record) -> NearRow:
        """The row of a record. Raises RecordError where a bound is not a time."""
        value, at = plain(record.value), record.timestamp
        before, after = self._apart[side]
        first = MIN_TIME if before is None else at - before
        last = MAX_TIME if after is None else at + after
        if self._froms[side] or self._untils[side]:
            named = {self._names[side]: value}
            first = max([first, *(_time(bound(named), MAX_TIME) for bound in self._froms[side])])
            last = min([last, *(_time(bound(named), MIN_TIME) for bound in self._untils[side])])
        end = min(max(at, last), LAST_TIME)
        return NearRow(at, first, last, end, encode_value(ordered(value, self._fields[side])))

    def keep(self, ctx: Context, side: int, rows: list[NearRow]) -> None:
        """Keep rows that were kept elsewhere."""
        rows.sort(key=_time_of)
        self._keep(ctx, side, rows)

    def kept(self) -> Iterator[tuple[int, int, bytes]]:
        """Side, time and encoded value of each row of the current key. For tests."""
        for side in (_LEFT, _RIGHT):
            own = self._side(side)
            for rows in (own.rows, *(self._segments(side)[number] for number in own.segments)):
                yield from ((side, row.at, row.data) for row in rows)

    def produce_pair(self, ctx: Context, left: bytes, right: bytes, at: int) -> None:
        """Emit the pair of two encoded records of the current key."""
        self._produce(ctx, self._framing(ctx)(left, right), at)

    def _fits(self, ctx: Any, new: tuple[list[NearRow], list[NearRow]]) -> bool:
        """Whether the results of new rows have room in the bundle."""
        if len(new[_LEFT]) + len(new[_RIGHT]) <= _FEW and not (
            self._side(_LEFT).segments or self._side(_RIGHT).segments
        ):
            return True  # it is little
        room: int = max(ctx.suspension.room, LEAST_BYTES)
        return self._most_bytes(new) <= _UNSEEN * room or self._bytes(ctx, new) <= room

    def _most_bytes(self, new: tuple[list[NearRow], list[NearRow]]) -> int:
        """An upper bound for the bytes of the results of new rows, whatever their times are."""
        most = 0
        for side in (_LEFT, _RIGHT):
            other = self._side(1 - side)
            count = len(other.rows) + sum([each.count for each in other.segments.values()])
            kept_bytes = sum([len(row.data) for row in other.rows])
            kept_bytes += sum([each.size for each in other.segments.values()])
            if side == _LEFT:
                count += len(new[_RIGHT])
                kept_bytes += sum([len(row.data) for row in new[_RIGHT]])
            own_bytes = sum([len(row.data) + RESULT_BYTES for row in new[side]])
            most += count * own_bytes + kept_bytes * len(new[side])
        return most

    def _bytes(self, ctx: Context, new: tuple[list[NearRow], list[NearRow]]) -> int:
        """An estimate of these bytes, from the rows that are near in time."""
        total = 0
        for side in (_LEFT, _RIGHT):
            rows = new[side]
            if not rows:
                continue
            lists = [*self._kept(ctx, 1 - side, rows)]
            if side == _LEFT:
                lists.append(new[_RIGHT])
            for others in lists:
                for row in rows:
                    start, stop = _reach(row, others)
                    if start < stop:
                        each = len(row.data) + len(others[start].data) + RESULT_BYTES
                        total += (stop - start) * each
        return total

    # --- results ----------------------------------------------------------------------------------

    def _meet(
        self, ctx: Context, side: int, new: list[NearRow], kept: Iterable[list[NearRow]]
    ) -> None:
        """Pair new rows with lists of rows of the other side, all in the order of time."""
        for rows in kept:
            if len(rows) < len(new):  # the partners that a row names are one stretch of the others
                self._pair(ctx, 1 - side, rows, new)
            else:
                self._pair(ctx, side, new, rows)

    def _pair(self, ctx: Context, side: int, ones: list[NearRow], others: list[NearRow]) -> None:
        """Pair rows of ``side`` (``ones``) with ``others``."""
        frame = self._framing(ctx) if self._in_pairs else None
        for one in ones:
            start = bisect_left(others, one.first, key=_time_of)
            stop = bisect_right(others, one.last, start, key=_time_of)
            self._candidates += stop - start
            for other in others[start:stop]:
                if other.first <= one.at <= other.last:
                    left, right = (one, other) if side == _LEFT else (other, one)
                    at = max(one.at, other.at)
                    if frame is not None:
                        row = frame(left.data, right.data)
                        self._produce(ctx, row, at)
                    elif self._kind is JoinKind.SEMI and not left.met:
                        self._produce(ctx, msgspec.Raw(left.data), at)
                    left.met = right.met = True

    def _part(self, ctx: Context, side: int, rows: list[NearRow]) -> None:
        """Emit the rows without a partner that none can reach any more."""
        if not self._alone[side]:
            return
        frame = self._framing(ctx)
        for row in rows:
            if not row.met and is_behind(row.end, ctx.watermark):
                row.met = True  # it has been emitted
                if not self._in_pairs:
                    self._produce(ctx, msgspec.Raw(row.data), row.end)
                else:
                    both = (row.data, _NULL) if side == _LEFT else (_NULL, row.data)
                    self._produce(ctx, frame(*both), row.end)

    def _framing(self, ctx: Context) -> Callable[[bytes, bytes], msgspec.Raw]:
        """A function from the encoded records of a pair to the encoded row of it: all that rows of
        a key share is encoded once."""
        left, right = self._names
        second = encode_value(right)
        whole = encode_value({**self._head(ctx.key), left: None, right: None})
        first = whole[: -len(_NULL + second + _NULL)]
        return lambda one, other: msgspec.Raw(b"".join((first, one, second, other)))

    def _produce(self, ctx: Context, row: Any, at: int) -> None:
        for stream in self._outputs:
            ctx.produce(stream, row, at)

    # --- state ------------------------------------------------------------------------------------

    def _kept(self, ctx: Context, side: int, new: list[NearRow]) -> Iterator[list[NearRow]]:
        """The rows of a side that new ones of the other side may meet. Those that the watermark has
        passed are gone, whether they have been removed or not."""
        own, now = self._side(side), ctx.watermark
        late = is_behind(new[0].at, now)
        earliest = min([row.first for row in new])
        latest = max([row.last for row in new])
        for number, segment in own.segments.items():
            if segment.first <= latest and segment.last >= earliest:
                rows = self._segments(side)[number]
                yield _there(rows, now) if late else rows
        yield _there(own.rows, now) if late else own.rows

    def _keep(self, ctx: Context, side: int, new: list[NearRow]) -> None:
        own = self._side(side)
        if is_behind(new[0].at, ctx.watermark):
            self._part(ctx, side, new)
        self._clean(ctx, side, own)
        own.rows += self._left_of(side, new, ctx.watermark)
        own.rows.sort(key=_time_of)
        if len(own.rows) > _FEW or sum([len(row.data) for row in own.rows]) > _FEW_BYTES:
            self._cut(side, own)
        self._put(ctx, side, own)

    def _cut(self, side: int, own: NearSide) -> None:
        """Move the rows into segments."""
        part: list[NearRow] = []
        size = 0
        for row in own.rows:
            if part and size + len(row.data) > _SEGMENT_BYTES:
                self._add_segment(side, own, part)
                part, size = [], 0
            part.append(row)
            size += len(row.data)
        self._add_segment(side, own, part)
        own.rows = []

    def _add_segment(self, side: int, own: NearSide, rows: list[NearRow]) -> None:
        end, waits = max(row.end for row in rows), self._waits(side, rows)
        size = sum([len(row.data) for row in rows])
        own.segments[own.number] = NearSegment(rows[0].at, rows[-1].at, end, waits, len(rows), size)
        self._segments(side)[own.number] = rows
        own.number += 1

    def _clean(self, ctx: Context, side: int, own: NearSide) -> None:
        """Remove rows and segments that are done."""
        own.rows = self._left_of(side, own.rows, ctx.watermark)
        for number, segment in list(own.segments.items()):
            if is_behind(segment.end, ctx.watermark) and not is_behind(
                segment.waits, ctx.watermark
            ):
                del own.segments[number]
                del self._segments(side)[number]

    def _left_of(self, side: int, rows: list[NearRow], watermark: int) -> list[NearRow]:
        """The rows that can still meet a partner, or have to be emitted without one."""
        if side == _LEFT and not self._in_pairs:
            rows = [row for row in rows if not row.met]
        if self._alone[side]:
            return [row for row in rows if not row.met or not is_behind(row.end, watermark)]
        return _there(rows, watermark)

    def _waits(self, side: int, rows: list[NearRow]) -> int:
        if not self._alone[side]:
            return MAX_TIME
        return min([row.end for row in rows if not row.met], default=MAX_TIME)

    def _put(self, ctx: Context, side: int, own: NearSide) -> None:
        """Keep a side. Its timer comes in time for rows without a partner; rows that only have to
        be removed are removed together."""
        at = self._waits(side, own.rows)
        if own.wakes_us == MAX_TIME:
            at = min(at, max([row.end for row in own.rows], default=MAX_TIME))
        for segment in own.segments.values():
            at = min(at, segment.end, segment.waits)
        if at < own.wakes_us:
            own.wakes_us = at
            ctx.set_timer(str(side), at)
        self._set(side, own)

    def _side(self, side: int) -> NearSide:
        return (self.left if side == _LEFT else self.right).get() or NearSide()

    def _set(self, side: int, own: NearSide) -> None:
        state = self.left if side == _LEFT else self.right
        if own.rows or own.segments:
            state.set(own)
        else:
            state.clear()

    def _segments(self, side: int) -> MapHandle[int, list[NearRow]]:
        return self.lefts if side == _LEFT else self.rights


def interval_join(
    spec: ComputationSpec,
    compile_expression: Callable[[str], Any],
    fields: Sequence[Sequence[str]] = ((), ()),
) -> IntervalJoined:
    """The computation for a spec."""
    work = spec.work_as(IntervalJoinSpec)
    return IntervalJoined(work, spec.inputs, spec.outputs, compile_expression, fields)


def _reach(one: NearRow, others: list[NearRow]) -> tuple[int, int]:
    """The range of ``others``, which are in the order of their times, whose times ``one``
    allows."""
    start = bisect_left(others, one.first, key=_time_of)
    return start, bisect_right(others, one.last, start, key=_time_of)


def _there(rows: list[NearRow], watermark: int) -> list[NearRow]:
    return [row for row in rows if row.end >= watermark]


def _time(value: Any, never: int) -> int:
    """A bound in µs; a null bounds everything."""
    if type(value) is int:
        return value
    if value is None:
        return never
    raise RecordError(
        f"a bound of within is a whole number of µs, not {type(value).__name__} {value!r:.80};"
        " time_of(field, 'ms') makes one"
    )
