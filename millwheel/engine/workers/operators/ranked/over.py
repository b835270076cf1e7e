"""Each record with aggregates of itself and of those before it in its group: ``over:``.

A record waits until the watermark has passed it. Then all records of its group up to the watermark
are taken in the order of their times, however they came; so the results are a function of the
records. The part of a record that an aggregate needs is kept while later ones may look back to it.

A few records lie in the entry of their group. More of them become segments while they wait, and
blocks, each with its accumulator, when they have been taken. Both are written once, read only where
their records come due or leave a look-back, and removed as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

import msgspec

from millwheel.api import Computation, Context, MapState, ValueState
from millwheel.core.aggregates.aggregation import FILTERED, SKIPPED, NamedAggregation
from millwheel.core.aggregates.families.rows import content
from millwheel.core.aggregates.stored_form import WHOLE
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.failures import in_words
from millwheel.core.model.keys import Key
from millwheel.core.model.limits import over
from millwheel.core.model.records import DeadLetter, Record, Timer
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.work import OverSpec
from millwheel.core.rows.latest import Located
from millwheel.core.rows.lookback import (
    Found,
    Lookback,
    LookbackRow,
    concerns_records,
    growing_results,
    single_results,
)
from millwheel.core.windows.lateness import is_behind
from millwheel.engine.workers.operators.ranked.over_rows import (
    OverGroup,
    OverRow,
    OverRows,
    PastBlock,
    PastRow,
    PastRows,
    WaitingRows,
    bytes_of,
    parts,
    size_of,
)
from millwheel.engine.workers.operators.record_joins import plain
from millwheel.errors import RecordError

_FEW = 64
"""Records that lie in the entry of their group: each bundle with the group writes them again."""
_FEW_BYTES = 32 << 10
"""Most bytes of them, likewise."""
_SEGMENT = 1_000
"""Records of a segment. One that has come due in part is read at each step of the watermark."""
_MOST_BYTES = 1 << 20
"""Most bytes of a segment or a block, which is read as a whole."""
_SHARE = 4
"""Where limits.state is low, so many parts of it: records of a key are not refused because many
lie together."""
_HEAD = 5  # bytes in front of those of an entry
_BLOCK = 512
"""Records of a block. A look-back merges the accumulators of its blocks whenever its group has new
results, and reads the records of one."""
_TAG = "due"
_time_of = attrgetter("at")


class Over(Computation):
    """The computation for ``over``. See the head of this file."""

    group: ValueState[OverGroup] = ValueState(OverGroup)
    later: MapState[int, OverRows] = MapState(int, OverRows)
    past: MapState[int, PastRows] = MapState(int, PastRows)
    sums: MapState[int, bytes] = MapState(int, bytes)
    total: ValueState[bytes] = ValueState(bytes)
    """The accumulator of all records, where none ever leaves a look-back."""

    def __init__(
        self,
        spec: OverSpec,
        aggregation: NamedAggregation,
        inputs: Sequence[str],
        sources: frozenset[str],
        outputs: Sequence[str],
        most: int,
        about: tuple[str, str] = ("", ""),
    ) -> None:
        """``sources``: the inputs whose records have positions in a source. ``most``: the most
        bytes of an entry of state. ``about``: the names of the pipeline and of the computation, for
        dead letters."""
        self._spec = spec
        self._aggregation = aggregation
        self._streams = {name: number for number, name in enumerate(inputs)}
        self._sources = sources
        self._outputs = tuple(outputs)
        self._most = most
        self._few_bytes = min(_FEW_BYTES, most // _SHARE)
        self._part_bytes = min(_MOST_BYTES, most // _SHARE)
        self._about = about
        self._names = tuple(each.name for each in spec.aggregates)
        self._wide = any(part.aggregator.ordered for part in aggregation.parts)
        # How long a group without a record is kept: nothing of it would be seen after that.
        self._keep_us = spec.ttl_us if spec.by_rows or spec.size is None else spec.size

    def process_batch(self, ctx: Context, records: Sequence[Record]) -> None:
        """Take the records of a key."""
        new = [row for record in records if (row := self._row(record)) is not None]
        if not new:
            return
        own = self.group.get() or OverGroup()
        own.waiting += new
        self._hold_few(own)
        self._put(ctx, own)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        """Emit the results of records that have come due, or forget a group that is of no more
        use."""
        own = self.group.get() or OverGroup()
        own.wakes_us = MAX_TIME
        due = self._due(own, ctx.watermark)
        if due:
            self._take(ctx, own, due)
        if self._keep_us is not None and own.begun:
            if is_behind(own.last_us + self._keep_us, ctx.watermark):
                self._forget(own)
        self._put(ctx, own)

    def go_on(self, ctx: Context, past: Sequence[Record], waiting: Sequence[Record]) -> None:
        """Keep records of the current key, of which columns have taken some already. Raises
        RecordError as there."""
        self._put(ctx, self._with(ctx.watermark, past, waiting))

    def kept(
        self, watermark: int, past: Sequence[Record] = (), waiting: Sequence[Record] = ()
    ) -> tuple[list[PastRow], list[OverRow]]:
        """The records of the current key that later results need, and those that wait, if it kept
        these, too. For tests."""
        own = self._with(watermark, past, waiting)
        taken = [row for number in own.blocks for row in self.past[number].rows]
        later = [
            row
            for number, each in own.segments.items()
            for row in self.later[number].rows[each.taken :]
        ]
        return [*taken, *own.rows][own.gone :], _in_order([*own.waiting, *later])

    def _with(self, watermark: int, past: Sequence[Record], waiting: Sequence[Record]) -> OverGroup:
        own = self.group.get() or OverGroup()
        rows = _in_order([row for record in past if (row := self._row(record)) is not None])
        # waiting records may be due by now, and look back from their own times
        begins = min([watermark, *(record.timestamp for record in waiting)])
        of_use = (
            self._keep_us is None or not rows or not is_behind(rows[-1].at + self._keep_us, begins)
        )
        if rows and of_use:
            self._keep(own, [(row.at, row) for row in rows], 0)
            own.last_us = rows[-1].at
        own.waiting += [row for record in waiting if (row := self._row(record)) is not None]
        self._hold_few(own)
        return own

    def _row(self, record: Record) -> OverRow | None:
        """The row of a record; None for one that the condition leaves out. Raises RecordError for
        one that has no fields, or not those that the aggregates need."""
        value = plain(record.value)
        if type(value) is not dict:
            raise RecordError(
                f"over adds fields to a record, and a {type(value).__name__} has no fields"
            )
        prepared = self._aggregation.prepare(value)
        if prepared is FILTERED:
            return None
        left_out = 0
        if SKIPPED in prepared:
            left_out = sum(1 << n for n, each in enumerate(prepared) if each is SKIPPED)
            prepared = [None if each is SKIPPED else each for each in prepared]
        if not value.keys().isdisjoint(self._names):
            value = {name: each for name, each in value.items() if name not in self._names}
        channel, number = "", 0
        if isinstance(record, Located) and record.stream in self._sources:
            channel, number = record.channel, record.number
        return OverRow(
            record.timestamp,
            self._streams[record.stream],
            channel,
            number,
            prepared,
            left_out,
            encode_value(value),
        )

    # --- results ----------------------------------------------------------------------------------

    def _take(self, ctx: Context, own: OverGroup, due: list[OverRow]) -> None:
        """Emit the results of records that have come due."""
        for rows in self._stretches(own, _in_order(due)):
            self._emit(ctx, own, rows)

    def _stretches(
        self, own: OverGroup, due: Sequence[OverRow]
    ) -> Iterator[list[tuple[int, OverRow]]]:
        """The records with the times that count, as long as the group is not forgotten. Time does
        not go back: a late record counts as of the last one."""
        some: list[tuple[int, OverRow]] = []
        ttl_us = self._spec.ttl_us
        last = own.last_us
        for row in due:
            at = max(row.at, last)
            if ttl_us is not None and last > MIN_TIME and at - last > ttl_us:
                if some:
                    yield some
                    some = []
                self._forget(own)
            some.append((at, row))
            last = at
        yield some

    def _emit(self, ctx: Context, own: OverGroup, rows: list[tuple[int, OverRow]]) -> None:
        spec, aggregation = self._spec, self._aggregation
        new = [(at, _prepared(row)) for at, row in rows]
        if spec.size is None:
            total = self.total.get() or WHOLE.encode(aggregation.create())
            whole, results = growing_results(
                aggregation, lambda: WHOLE.decode(total), new, spec.by_rows, self._encoded
            )
            self._produce(ctx, rows, results)
            if whole is not None:
                self.total.set(whole)
        else:
            blocks = [_Kept(self, number, each) for number, each in own.blocks.items()]
            recent = [(row.at, _prepared(row)) for row in own.rows]
            results, dropped = self._results(own, recent, blocks, new)
            self._produce(ctx, rows, results)
            self._keep(own, rows, dropped)
        own.last_us = rows[-1][0]

    def _encoded(self, acc: Any) -> bytes:
        """The accumulator as it is kept. Raises RecordError for more than an entry of state may
        have: the timer would fail with it, and its records would wait for ever."""
        data = WHOLE.encode(acc)
        size = len(data) + _HEAD
        if size > self._most:
            raise RecordError(over("state", "what is kept of all records", size, self._most))
        return data

    def _results(
        self,
        own: OverGroup,
        recent: list[LookbackRow],
        blocks: Sequence[_Kept],
        new: list[LookbackRow],
    ) -> tuple[list[tuple[int, Found]], int]:
        """The results of new records, and how many records have left."""
        aggregation, by_rows, size = self._aggregation, self._spec.by_rows, self._spec.size
        assert size is not None
        try:
            lookback = Lookback(aggregation, by_rows, size, blocks, recent, own.gone)
            return [*lookback.results(new)], lookback.dropped
        except BaseException as ex:
            if not concerns_records(ex):
                raise
            past = [row for block in blocks for row in block.rows()] + recent
            return single_results(aggregation, by_rows, size, past[own.gone :], new)

    def _produce(
        self,
        ctx: Any,
        rows: Sequence[tuple[int, OverRow]],
        results: Iterable[tuple[int, Found]],
    ) -> None:
        """Emit ``results``, each with the number of rows that have it. A record without one is a
        dead letter, and lies in the look-backs of others as before: so it does not keep the others
        from theirs, whichever come due with it."""
        coming = iter(rows)
        for count, outcome in results:
            added = b""
            if not isinstance(outcome, BaseException):
                try:
                    added = encode_value(outcome)
                except BaseException as ex:  # a user's aggregator made it
                    if not concerns_records(ex):
                        raise
                    outcome = ex
            for _ in range(count):
                _, row = next(coming)
                try:
                    if isinstance(outcome, BaseException):
                        raise outcome
                    value = msgspec.Raw(_one_map(row.data, added, len(self._names)))
                    for stream in self._outputs:
                        ctx.produce(stream, value, row.at)
                except BaseException as ex:
                    if not concerns_records(ex):
                        raise
                    ctx.refuse(self._letter(row, ctx.key, ex))

    def _letter(self, row: OverRow, key: Key, ex: BaseException) -> DeadLetter:
        stream = next(name for name, number in self._streams.items() if number == row.stream)
        value = decode_value(row.data)
        reason, kind = f"over: {in_words(ex)}", type(ex).__name__
        return DeadLetter(*self._about, stream, reason, key, value, row.at, error=kind)

    # --- state ------------------------------------------------------------------------------------

    def _due(self, own: OverGroup, watermark: int) -> list[OverRow]:
        """The records that the watermark has passed, which wait no longer."""
        due = [row for row in own.waiting if is_behind(row.at, watermark)]
        if due:
            own.waiting = [row for row in own.waiting if not is_behind(row.at, watermark)]
        for number, segment in list(own.segments.items()):
            if not is_behind(segment.first, watermark):
                continue
            rows = self.later[number].rows
            start = segment.taken
            while segment.taken < segment.count and is_behind(rows[segment.taken].at, watermark):
                segment.taken += 1
            due += rows[start : segment.taken]
            if segment.taken < segment.count:
                segment.first = rows[segment.taken].at
            else:
                del own.segments[number]
                del self.later[number]
        return due

    def _hold_few(self, own: OverGroup) -> None:
        """Move records into segments where many wait."""
        if len(own.waiting) <= _FEW and sum(map(size_of, own.waiting)) <= self._few_bytes:
            return
        rows = sorted(own.waiting, key=_time_of)
        own.waiting = []
        for part in parts(rows, [*map(size_of, rows)], _SEGMENT, self._part_bytes):
            own.segments[own.number] = WaitingRows(part[0].at, 0, len(part))
            self.later[own.number] = OverRows(part)
            own.number += 1

    def _keep(self, own: OverGroup, rows: Sequence[tuple[int, OverRow]], dropped: int) -> None:
        """Keep new records for the results of later ones. ``dropped``: how many have left."""
        size = self._spec.size
        assert size is not None
        own.rows += [
            PastRow(at, row.arguments, row.left_out, self._past_size(row)) for at, row in rows
        ]
        own.gone += dropped
        if self._spec.by_rows:  # the next record needs one fewer than this look-back
            count = sum(block.count for block in own.blocks.values()) + len(own.rows)
            own.gone = max(own.gone, count - (size - 1))
        for number, block in list(own.blocks.items()):
            if own.gone < block.count:
                break
            own.gone -= block.count
            self._remove(own, number)
        if not own.blocks:
            del own.rows[: own.gone]
            own.gone = 0
        sizes = [row.size for row in own.rows]
        if len(own.rows) > _FEW or sum(sizes) > self._few_bytes:
            for part in parts(own.rows, sizes, _BLOCK, self._part_bytes):
                self._add_block(own, part)
            own.rows = []

    def _past_size(self, row: OverRow) -> int:
        long = bytes_of(row.arguments)
        return len(row.data) + long if self._wide else long

    def _add_block(self, own: OverGroup, rows: list[PastRow]) -> None:
        try:
            acc = self._aggregation.add_many(
                self._aggregation.create(), list(map(_prepared, rows)), list(map(_time_of, rows))
            )
            data = WHOLE.encode(acc)
            self.sums[own.number] = data if len(data) <= self._part_bytes else b""
        except BaseException as ex:
            if not concerns_records(ex):
                raise
            # see _Kept.acc
            self.sums[own.number] = b""
        own.blocks[own.number] = PastBlock(len(rows), rows[0].at, rows[-1].at)
        self.past[own.number] = PastRows(rows)
        own.number += 1

    def _remove(self, own: OverGroup, number: int) -> None:
        del own.blocks[number], self.past[number], self.sums[number]

    def _forget(self, own: OverGroup) -> None:
        """Begin the group anew."""
        for number in list(own.blocks):
            self._remove(own, number)
        own.rows, own.gone, own.last_us = [], 0, MIN_TIME
        if self._spec.size is None:
            self.total.clear()

    def _put(self, ctx: Context, own: OverGroup) -> None:
        """Keep the group. Its timer comes for the next record, or else when the group is of no more
        use."""
        at = min([row.at for row in own.waiting], default=MAX_TIME)
        at = min([at, *(segment.first for segment in own.segments.values())])
        if at == MAX_TIME and not own.begun:
            self.group.clear()
            return
        if at == MAX_TIME and self._keep_us is not None:
            at = own.last_us + self._keep_us
        # A timer that the watermark has passed, and that has not come, has failed.
        if at < own.wakes_us or is_behind(own.wakes_us, ctx.watermark):
            own.wakes_us = at
            ctx.set_timer(_TAG, at)
        self.group.set(own)


class _Kept:
    """A block of a group, as a look-back reads it."""

    def __init__(self, over: Over, number: int, block: PastBlock) -> None:
        self._over = over
        self._number = number
        self.count, self.first, self.last = block.count, block.first, block.last

    def rows(self) -> list[LookbackRow]:
        return [(row.at, _prepared(row)) for row in self._over.past[self._number].rows]

    def acc(self) -> Any:
        data = self._over.sums[self._number]
        if not data:
            raise RecordError("these records have no sum together")
        return WHOLE.decode(data)


def _prepared(row: OverRow | PastRow) -> list[Any]:
    """The arguments of the aggregates, as they take them."""
    if not row.left_out:
        return row.arguments
    return [
        SKIPPED if row.left_out >> n & 1 else argument for n, argument in enumerate(row.arguments)
    ]


def _in_order(rows: list[OverRow]) -> list[OverRow]:
    """The rows by time; of one time by stream, then by position in the source or, behind a
    computation, by content."""
    rows.sort(key=_time_of)
    if all(one.at < other.at for one, other in pairwise(rows)):
        return rows
    return sorted(rows, key=_position)


def _position(row: OverRow) -> tuple[int, int, str, int, bytes]:
    name = b"" if row.channel else content(decode_value(row.data))
    return row.at, row.stream, row.channel, row.number, name


_FIXED, _MAP16, _MAP32 = 0x80, 0xDE, 0xDF  # Fixed: how msgpack begins a map


def _one_map(one: bytes, other: bytes, more: int) -> bytes:
    """Two encoded maps without a common key as one; the second has ``more`` entries."""
    count, start = _map_head(one)
    _, after = _map_head(other)
    whole = count + more
    head = bytes([_FIXED | whole]) if whole < 16 else bytes([_MAP32]) + whole.to_bytes(4, "big")
    if 16 <= whole < 1 << 16:
        head = bytes([_MAP16]) + whole.to_bytes(2, "big")
    return b"".join((head, one[start:], other[after:]))


def _map_head(data: bytes) -> tuple[int, int]:
    """The number of entries of an encoded map, and the position where they begin."""
    if data[0] == _MAP16:
        return int.from_bytes(data[1:3], "big"), 3
    if data[0] == _MAP32:
        return int.from_bytes(data[1:5], "big"), 5
    return data[0] & 0x0F, 1
