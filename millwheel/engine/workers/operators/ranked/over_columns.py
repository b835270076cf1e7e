"""Runs ``over`` with rows or a range on whole bundles: the records of the keys of a shard lie in
columnar segments, and all that the watermark has passed gets its aggregates in one operation, and
leaves as columns (:mod:`millwheel.core.rows.lookback_columns`). operators/key_forms.py chooses the
keys in columns.

Records that come behind the watermark are ordered behind those that were there: their keys go on in
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state.columns_to_rows import Left
from millwheel.core.formats.store_layout import STATE, key_in
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Record
from millwheel.core.model.times import MIN_TIME, held_at
from millwheel.core.pipeline.work import OverSpec
from millwheel.core.rows.kept_records import AT, ROW, Mask
from millwheel.core.rows.lookback_columns import LookbackColumns, LookbackForm, LookbackSegments
from millwheel.core.windows.lateness import is_behind
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.operators.key_forms import KeptBundleOperator, Offer
from millwheel.engine.workers.operators.ranked.over import Over
from millwheel.engine.workers.state.column_segments import ColumnShard
from millwheel.errors import invariant

_MOST_BYTES = 64 << 20
"""Bytes of the kept records of a shard; once there are more, half of them go by rows."""
_FAN = 16
"""Segments of one size that are merged into one: a step of the watermark looks at all of them."""
RowsOfKey = tuple[list[Record], list[Record]]
"""The records that have been taken, and those that wait."""


class OverOperator(KeptBundleOperator):
    """The operator of ``over`` in columns. See the head of this file."""

    def __init__(
        self, form: LookbackForm | None, shard: ColumnShard, few: int, *arguments: Any
    ) -> None:
        """Bundles of fewer than ``few`` records are small. No ``form``: all keys are in rows, also
        those that another version of the pipeline had in columns."""
        work = arguments[0].work_as(OverSpec)
        invariant(work.size is not None, "a look-back without a size is not in columns")
        self._lookbacks = form
        self.in_columns = form is not None
        self._lying = LookbackSegments(work.by_rows, work.size, _FAN)
        super().__init__(self._lying, _MOST_BYTES, shard, few, *arguments)
        assert isinstance(self._instance, Over)
        self._over: Over = self._instance

    def due_at(self) -> int:
        return min(super().due_at(), self._lying.due_at())

    def hold(self, now_us: int) -> Hold:
        own = Hold(held_at(self._lying.fires_at()), "record (in columns) that waits for its turn")
        return min(own, super().hold(now_us), key=lambda hold: hold.at)

    def _row_type(self, stream: str = "") -> Any:
        return self._lying.row_type

    def _holds(self, rows: Any, keys: Any) -> bool:
        columns = None if self._lookbacks is None else self._lookbacks.of(rows)
        return columns is not None and columns.holds(rows, keys)

    def kept(self) -> dict[Key, tuple[list[Any], list[Any]]]:
        """The records of each key that later results need, and those that wait; the same in either
        form. For tests, between bundles."""
        by_key = self._rows_of([Left(each.groups, each.fired) for each in self._lying.segments()])
        stored = {key_in(entry) for entry, _ in self._shard.store.scan(STATE)}
        kept = {}
        for key in {*by_key, *stored}:
            self._context.point(key, MIN_TIME)
            own = self._over.kept(self._lying.closed, *by_key.get(key, ()))
            if any(own):
                kept[key] = own
        self._state.forget()
        return kept

    # --- results ----------------------------------------------------------------------------------

    def _take_due(self, bundle: Bundle) -> None:
        watermark = bundle.watermark
        if is_behind(self._lying.fires_at(), watermark):
            segments = self._lying.segments()
            try:
                with self._boundary.inside(bundle.count):
                    made = self._of(self._lying.row_type).results(segments, watermark)
            except Inexact:  # rows find the record at fault, and their timers are due
                self._let_go([self._lying.due_keys(watermark)], bundle)
            else:
                self.bundles_held += 1
                for stream in self._outputs:
                    bundle.outputs.produce_columns(made.named(stream))
        self._lying.take(watermark)

    # --- keys in columns --------------------------------------------------------------------------

    def _of(self, rows: Any) -> LookbackColumns:
        columns = None if self._lookbacks is None or rows is None else self._lookbacks.of(rows)
        if columns is None:
            raise Inexact
        return columns

    def _columns_of(self, batch: AnyBatch, like: Any) -> LookbackColumns:
        if like is None and isinstance(batch, ColumnBatch):
            like = pl.Struct(dict(batch.frame.schema))
        return self._of(like)

    def _fitting(self, batch: ColumnBatch, like: Any, bundle: Bundle) -> Mask:
        fits = self._columns_of(batch, like).fitting(batch, like)
        mask: Mask = fits & (batch.timestamps >= max(bundle.watermark, self._lying.taken_until))
        return mask

    def _frames(
        self, offers: Sequence[Offer], taken: Sequence[Mask], bundle: Bundle
    ) -> list[pl.DataFrame]:
        new = []
        for each, mask in zip(offers, taken, strict=True):
            if each.columns is not None and mask.any():
                columns = each.columns.where(mask[each.inside])
                new.append(self._columns_of(columns, self._row_type()).taken(columns))
        return [pl.concat(new, rechunk=True)] if new else []

    # --- keys in rows -----------------------------------------------------------------------------

    def _rows_of(self, segments: Sequence[Left]) -> dict[Key, RowsOfKey]:
        by_key: dict[Key, RowsOfKey] = {}
        stream = self._spec.inputs[0].stream
        for segment in segments:
            frame = segment.groups
            parts = key_list(frame[KEY]), frame[ROW].struct.unnest().to_dicts(), frame[AT].to_list()
            for key, value, at in zip(*parts, strict=True):
                waits = at >= segment.fired
                by_key.setdefault(key, ([], []))[waits].append(Record(key, value, at, stream))
        return by_key

    def _keep_in_rows(self, key: Key, rows: RowsOfKey) -> None:
        self._over.go_on(self._context, *rows)

    def _rows_in(self, rows: RowsOfKey) -> list[tuple[Any, int]]:
        return [(record.value, record.timestamp) for record in rows[1]]
