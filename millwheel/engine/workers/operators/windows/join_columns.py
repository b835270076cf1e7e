"""Runs a join in tumbling windows: whole bundles are kept as they come, and sorted by key when a
window closes.

The row form has an entry, a timer and a hold for each key and window. Here a bundle is one columnar
segment, whose rows are records (:mod:`millwheel.core.columns.pairs`). Where all records of the
closed windows came in columns, their results are made in one operation, and leave in columns.
Otherwise their records are grouped by key in one operation, and only keys that make a result are
looked at.

Open windows are in memory. Many records (``_MOST_BYTES`` in the open windows of a shard), or a time
or a key that no column can hold, make the shard go on in rows: the open windows are handed to the
row form, whose results are the same, some keys in each bundle
(:mod:`millwheel.core.columns.state.columns_to_rows`). When the windows in rows have closed, the
shard takes whole bundles again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from millwheel.adapters.ports import StoreView
from millwheel.api import Computation
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch, ColumnBatch, joined
from millwheel.core.columns.groups_frame import END, KEY, START, in_order_of_time
from millwheel.core.columns.pairs import (
    AT,
    INPUT,
    VALUE,
    JoinWindows,
    Pairing,
    encoded,
    encoded_schema,
)
from millwheel.core.columns.state.columns_to_rows import Leaving, Left, keys_of, where
from millwheel.core.formats.codec import MOST_NESTING, decode_value, encode_value, nests_too_deeply
from millwheel.core.formats.store_layout import WINDOW
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key, key_bytes, key_from_bytes
from millwheel.core.model.times import held_at
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import JoinKind, JoinSpec
from millwheel.core.windows.calls import Group
from millwheel.core.windows.contract import Effects, LateRecord, Times
from millwheel.core.windows.lateness import still_open, too_late
from millwheel.core.windows.panes import pane_of
from millwheel.core.windows.windows import Window
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.bundle.bundle import WINDOW as CALL_OF_WINDOW
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.operators.callbacks import Decode
from millwheel.engine.workers.operators.record_joins import Firing
from millwheel.engine.workers.operators.suspension import LEAST_BYTES, RESULT_BYTES
from millwheel.engine.workers.operators.windows.join import WindowJoinOperator
from millwheel.engine.workers.state.column_segments import (
    ColumnShard,
    restore_segments,
    validate_segments,
    write_segments,
)
from millwheel.engine.workers.state.overlay import Overlay

_MOST_BYTES = 128 << 20
"""Bytes of the records in the open windows of a shard; more of them go by rows."""
_MOST_PAIR_BYTES = 256 << 20
"""Bytes of results that are made in one operation: more than the records of open windows, of which
most have few partners. The keys with the most results go by rows, which make some in each
bundle."""
_FAN = 32
"""Segments of one size that are merged into one; seldom, because merging makes no fewer records."""
_TOGETHER = 1_000
"""Most records of both inputs that are one segment."""
_AT_ONCE = 1_000
"""Keys and windows that are decoded at once."""
_ARRAY32 = b"\xdd"  # Fixed: how msgpack begins an array with a length of four bytes


def _makes_result(kind: JoinKind) -> pl.Expr:
    """An expression for the keys of a window that make a result, by the inputs of their records."""
    least, most = pl.col(INPUT).list.min(), pl.col(INPUT).list.max()
    if kind is JoinKind.INNER:
        return least < most
    if kind is JoinKind.RIGHT:
        return most == 1
    return least == 0 if kind is JoinKind.LEFT else pl.lit(True)


class JoinOperator(WindowJoinOperator):
    """The operator of a join in tumbling windows, in columns. See the head of this file."""

    def __init__(
        self,
        spec: ComputationSpec,
        pipeline: PipelineSpec,
        instance: Computation,
        overlay: Overlay,
        decode: Decode,
        cache_entries: int,
        pairing: Pairing,
        shard: ColumnShard,
    ) -> None:
        super().__init__(spec, pipeline, instance, overlay, decode, cache_entries)
        self._kind = spec.work_as(JoinSpec).kind
        self._boundary = ColumnBoundary(spec.name)
        self._pairing = pairing
        self._shard = shard
        self._windows = JoinWindows(pairing, fan=_FAN)
        self._leaving = Leaving(self._windows)
        self._in_rows = self._has_rows()
        self._sides: tuple[Any, list[pl.Series] | None] = None, None
        """The columns of the window whose pairs were emitted last, by its key and bounds."""
        self._instance.produce_pairs = self._produce_pairs
        restore_segments(self._windows, shard)

    def due_at(self) -> int:
        return min(super().due_at(), self._windows.due_at())

    def hold(self, now_us: int) -> Hold:
        own = Hold(held_at(self._windows.due_at()), "window of a join, which outputs as it closes")
        return min(own, super().hold(now_us), key=lambda hold: hold.at)

    def validate(self, state: StoreView) -> None:
        super().validate(state)
        validate_segments([self._windows], self._shard.name, state)

    def open_windows(self, key: Key) -> list[Window]:
        """The windows of a key that hold state, ordered by end."""
        groups = (
            encoded(self._windows.all_groups()).filter(pl.col(KEY).eq(key_bytes(key)))
            if self._windows
            else None
        )
        windows = (
            []
            if groups is None
            else [Window(*bounds) for bounds in groups.select(START, END).unique().iter_rows()]
        )
        return sorted(
            [*windows, *super().open_windows(key)], key=lambda window: (window.end, window.start)
        )

    def run(self, bundle: Bundle) -> None:
        if self._in_rows and not self._has_rows():
            self._in_rows = False
        super().run(bundle)
        if self._in_rows:
            self._hand_over(self._leaving.next_part(), bundle)
        write_segments(self._windows, self._shard.name, bundle.overlay)

    # --- a bundle ---------------------------------------------------------------------------------

    def _take(self, bundle: Bundle, times: Times) -> None:
        if closed := self._windows.take_closed(bundle.watermark):
            self._join_closed(closed, bundle)
        batches = [arrival.batch for arrival in bundle.arrivals]
        stay = [np.full(len(batch), not self._in_rows) for batch in batches]
        if self._in_rows and self._windows:
            stay = self._leaving.stays(batches)
        staying = [
            where(batch, mask) for batch, mask in zip(batches, stay, strict=True) if mask.any()
        ]
        try:
            with self._boundary.inside(bundle.count):
                frames = self._frames(staying)
        except Inexact:
            self._in_rows = True
            for batch in batches:
                self._hand_over(self._leaving.taken_out([keys_of(batch)]), bundle)
        else:
            for records in frames:
                self._add(records, bundle)
            pairs = zip(bundle.arrivals, stay, strict=True)
            arrivals = [
                replace(arrival, batch=where(arrival.batch, ~mask))
                for arrival, mask in pairs
                if not mask.all()
            ]
            bundle.arrivals = arrivals
            self._in_rows = self._in_rows or self._windows.size() > _MOST_BYTES
        super()._take(bundle, times)

    def _frames(self, batches: Sequence[AnyBatch]) -> list[pl.DataFrame]:
        """The records of a bundle, those of an input in the order in which they came. Those of the
        other input are in a frame of their own, unless they are few: together, each would have the
        fields of both."""
        batches = [batch for batch in batches if len(batch)]
        columns = [batch for batch in batches if isinstance(batch, ColumnBatch)]
        if columns and len(columns) == len(batches):
            frames = [
                self._pairing.taken(batch)
                for stream in self._streams
                for batch in _of(stream, columns)
            ]
            fitting = [frame for frame in frames if frame is not None]
            if len(fitting) == len(frames):
                few = sum(map(len, columns)) <= _TOGETHER
                return [self._pairing.merge(fitting)] if few else fitting
        return [self._encoded_frame(batches)] if batches else []

    def _encoded_frame(self, batches: Sequence[AnyBatch]) -> pl.DataFrame:
        keys: list[bytes] = []
        inputs: list[int] = []
        stamps: list[int] = []
        values: list[bytes] = []
        for any_batch in batches:
            batch = any_batch.rows()
            keys += map(key_bytes, batch.keys)
            inputs += [self._numbers[batch.stream]] * len(batch)
            stamps += batch.timestamps
            values += [
                bytes(value) if type(value) is msgspec.Raw else encode_value(value)
                for value in batch.values
            ]
        at = np.array(stamps, np.int64)
        bounds = self._pairing.bounds(at, self._pairing.named(values))
        if bounds is None:
            raise Inexact
        columns = (keys, *bounds, inputs, at, values)
        schema = encoded_schema()
        return pl.DataFrame(dict(zip(schema, columns, strict=True)), schema)

    def _add(self, records: pl.DataFrame, bundle: Bundle) -> None:
        in_time = still_open(records[END], bundle.watermark)
        open_records = records if in_time.all() else records.filter(in_time)
        if open_records.height < records.height:
            effects = Effects()
            for key, _, _, number, at, value in encoded(records.filter(~in_time)).iter_rows():
                late = LateRecord(
                    key_from_bytes(key), [number, decode_value(value)], at, too_late()
                )
                effects.late.append(late)
            self._perform(effects, None, bundle)
        self._windows.add(open_records)

    def _hand_over(self, segments: Sequence[Left], bundle: Bundle) -> None:
        """Keep the records of these segments in rows."""
        if not segments:
            return
        groups = []
        records = _by_key(self._pairing.merge([each.groups for each in segments]))
        for key, start, end, inputs, stamps, values in records.iter_rows():
            acc = [
                [[n, decode_value(value)], at]
                for n, at, value in zip(inputs, stamps, values, strict=True)
            ]
            groups.append(
                (key_from_bytes(key), Group(Window(start, end), acc, len(acc), None, None))
            )
        self.take_groups(groups, bundle)

    # --- closed windows ---------------------------------------------------------------------------

    def _join_closed(self, closed: list[pl.DataFrame], bundle: Bundle) -> None:
        """Emit the pairs of windows that have closed."""
        plain = not (self._typed or self._attempts.avoided.hangs or self._attempts.avoided.lone)
        pairs, heavy = None, None
        with suppress(Inexact), self._boundary.inside(bundle.count):
            heavy = self._heavy(closed) if plain else None
            others = closed if heavy is None else [_without(part, heavy) for part in closed]
            pairs = self._pairing.pairs(others) if plain else None
        if pairs is not None:
            if heavy is not None:
                theirs = [_among(part, heavy) for part in closed]
                self._call(self._with_results(theirs), bundle)
            self._produce_columns(pairs, bundle.outputs.produce_columns)
            bundle.try_(CALL_OF_WINDOW, pairs.height)
            return
        groups = self._with_results(closed)
        if plain:
            self._produce(groups, bundle)
        else:
            self._call(groups, bundle)

    def _with_results(self, closed: list[pl.DataFrame]) -> pl.DataFrame:
        """The keys and windows that make a result, with their records."""
        return _by_key(in_order_of_time(self._pairing.merge(closed))).filter(
            _makes_result(self._kind)
        )

    def _heavy(self, closed: list[pl.DataFrame]) -> pl.DataFrame | None:
        """The keys with too many results for one step, and those of which some wait already."""
        if self._identified:
            return None
        waiting = self._suspension.keys()
        return self._pairing.heavy(closed, _MOST_PAIR_BYTES, RESULT_BYTES, waiting)

    def _produce_columns(self, pairs: pl.DataFrame, produce: Callable[[ColumnBatch], None]) -> None:
        stamps, keys = pairs["window_end"].to_numpy() - 1, self._pairing.keys_of(pairs)
        for stream in self._spec.outputs:
            produce(ColumnBatch(stream, np.array([], np.int64), stamps, keys, pairs))

    def _produce_pairs(
        self, ctx: Any, firing: Firing, pairs: Sequence[Sequence[Any]], start: int
    ) -> int | None:
        if None in pairs[0] or None in pairs[1] or self._typed or self._identified:
            return None
        some = None
        with suppress(Inexact), self._boundary.inside(ctx.count):
            if not firing.stored or self._suspension.room <= 0:
                return 0 if self._columns_of(ctx, firing, pairs) else None
            some = self._some_of(ctx, firing, pairs, start)
        if some is None:
            return None
        self._produce_columns(some, ctx.produce_columns)
        return some.height

    def _some_of(
        self, ctx: Any, firing: Firing, pairs: Sequence[Sequence[Any]], start: int
    ) -> pl.DataFrame | None:
        """The pairs from number ``start`` on that there is room for."""
        sides = self._columns_of(ctx, firing, pairs)
        if sides is None:
            return None
        end = len(sides[0]) * len(sides[1])
        size = sum(int(side.estimated_size()) // len(side) for side in sides) + RESULT_BYTES
        numbers = range(start, min(start + self._suspension.room // size + 1, end))
        some = self._pairing.some_of(ctx.key, firing.window, sides, numbers)
        if some is not None:
            self._suspension.room -= size * len(numbers)
        if numbers.stop == end:
            self._sides = None, None
        return some

    def _columns_of(
        self, ctx: Any, firing: Firing, pairs: Sequence[Sequence[Any]]
    ) -> list[pl.Series] | None:
        if self._sides[0] != (ctx.key, firing.window):
            self._sides = (ctx.key, firing.window), self._pairing.sides_of(pairs)
        return self._sides[1]

    def _produce(self, groups: pl.DataFrame, bundle: Bundle) -> None:
        """Emit results without a call for each key, where there is room for them: decoded values
        can be encoded, so only those that nest as deeply as they may can fail."""
        join, suspension, tried = self._instance, self._suspension, 0
        for some in groups.iter_slices(_AT_ONCE):
            data = some[VALUE].explode().to_list()
            values = _decoded(data)
            columns = [some[name].to_list() for name in (KEY, START, END, INPUT)]
            after = 0
            for index, (key_data, start, end, numbers) in enumerate(zip(*columns, strict=True)):
                key, first, after = key_from_bytes(key_data), after, after + len(numbers)
                sides: tuple[list[Any], list[Any]] = ([], [])
                for number, value in zip(numbers, values[first:after], strict=True):
                    sides[number].append(value)
                count = max(len(sides[0]) * len(sides[1]), len(numbers))
                longest = max(map(len, data[first:after]))
                size = count * (2 * longest + RESULT_BYTES)
                is_large = size > max(suspension.room, LEAST_BYTES)
                deep = longest >= MOST_NESTING and any(map(_is_deepest, data[first:after]))
                if is_large or deep or suspension.has(key):
                    self._call(some.slice(index, 1), bundle)
                    continue
                suspension.room -= size
                tried += 1
                for row in join.rows(key, Window(start, end), *sides):
                    for stream in self._spec.outputs:
                        bundle.outputs.produce(stream, key, row, end - 1)
        bundle.try_(CALL_OF_WINDOW, tried)

    def _call(self, groups: pl.DataFrame, bundle: Bundle) -> None:
        for key, start, end, numbers, stamps, values in groups.iter_rows():
            records = zip(numbers, stamps, values, strict=True)
            rows = [[[number, decode_value(value)], at] for number, at, value in records]
            self._emit(pane_of(key_from_bytes(key), Window(start, end), rows), None, bundle)

    def _has_rows(self) -> bool:
        return next(iter(self._shard.store.scan(WINDOW)), None) is not None


def _is_deepest(value: bytes) -> bool:
    """Whether a value nests as deeply as it may: no result can have it."""
    return nests_too_deeply(value, MOST_NESTING - 1)


def _of(stream: str, batches: Sequence[ColumnBatch]) -> list[ColumnBatch]:
    """The batches of a stream, as one if they have the same columns."""
    selected = [batch for batch in batches if batch.stream == stream]
    alike = all(
        each.frame.schema == selected[0].frame.schema and each.keys.dtype == selected[0].keys.dtype
        for each in selected
    )
    return [joined(selected)] if selected and alike else selected


def _decoded(values: Sequence[bytes]) -> list[Any]:
    """Many values with one call of the decoder: they are the items of an array."""
    items: list[Any] = decode_value(b"".join((_ARRAY32, len(values).to_bytes(4, "big"), *values)))
    return items


def _among(records: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    return records.join(keys, on=KEY, how="semi", maintain_order="left")


def _without(records: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    return records.join(keys, on=KEY, how="anti", maintain_order="left")


def _by_key(records: pl.DataFrame) -> pl.DataFrame:
    """One row for each key and window, with lists of its records in the order of arrival."""
    whole = encoded(records)
    return whole.group_by(KEY, START, END, maintain_order=True).agg(INPUT, AT, VALUE)
