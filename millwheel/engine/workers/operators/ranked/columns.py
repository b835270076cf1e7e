"""Runs ``top`` and ``deduplicate`` with ``keep`` on whole bundles: the kept rows of a shard are in
columnar segments, a bundle meets them in one operation, and changes leave as columns
(:mod:`millwheel.core.rows.segments`). key_forms.py chooses the keys in columns.

For keys in rows, columns choose the records of a bundle that may be among the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.columns_to_rows import (
    Left,
    keys_of,
    where,
)
from millwheel.core.formats.store_layout import STATE, key_in
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MIN_TIME
from millwheel.core.rows.kept_records import Mask
from millwheel.core.rows.ranking import Row
from millwheel.core.rows.segments import FirstColumns, FirstRowSegments, rows_by_key
from millwheel.core.tracing import TraceSpan
from millwheel.core.windows.calls import Group
from millwheel.core.windows.lateness import is_behind
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.callbacks import Together
from millwheel.engine.workers.operators.key_forms import KeptOperator, Offer, without_keys
from millwheel.engine.workers.operators.ranked.top import FirstRows
from millwheel.engine.workers.operators.windows.grouping import columns_of
from millwheel.engine.workers.state.column_segments import (
    ColumnShard,
)

_MOST_BYTES = 64 << 20
"""Bytes of the kept rows of a shard; once there are more, half of them go by rows."""
_FAN = 16
"""Segments of one size that are merged into one: a bundle looks at all of them."""


class FirstRowsOperator(KeptOperator):
    """The operator of ``top`` and ``deduplicate`` in columns. See the head of this file."""

    def __init__(
        self,
        plan: ColumnPlan | None,
        columns: FirstColumns | None,
        shard: ColumnShard,
        few: int,
        *arguments: Any,
    ) -> None:
        """Bundles of fewer than ``few`` records are small. ``plan`` chooses in columns for keys in
        rows. No ``columns``: all keys are in rows, also those that another version of the pipeline
        had in columns."""
        self._plan = plan
        self._columns = columns
        self.in_columns = columns is not None
        self._few = few
        self.bundles_grouped = 0
        self._segments_of_keys = FirstRowSegments(_FAN)
        super().__init__(self._segments_of_keys, _MOST_BYTES, shard, few, *arguments)
        assert isinstance(self._instance, FirstRows)
        self._rows: FirstRows = self._instance

    def _row_type(self, stream: str = "") -> Any:
        return self._segments_of_keys.row_type

    def _holds(self, rows: Any, keys: Any) -> bool:
        return self._columns is not None and self._columns.holds(rows, keys)

    def kept(self) -> dict[Key, list[Row]]:
        """The rows of each key, which are the same in either form. For tests, between bundles."""
        kept = rows_by_key([segment.groups for segment in self._kept.segments()])
        for key in {key_in(entry) for entry, _ in self._shard.store.scan(STATE)}:
            self._context.point(key, MIN_TIME)
            kept[key] = self._rows.kept()
        self._state.forget()
        return kept

    # --- keys in columns --------------------------------------------------------------------------

    def _columns_of(self, batch: AnyBatch, like: Any) -> FirstColumns:
        assert self._columns is not None
        return self._columns

    def _fitting(self, batch: ColumnBatch, like: Any, bundle: Bundle) -> Mask:
        return self._columns_of(batch, like).fitting(batch, like)

    def _taken(
        self, offers: Sequence[Offer], fit: Sequence[Mask], gone: list[pl.Series], bundle: Bundle
    ) -> list[Mask]:
        taken = [np.zeros(len(mask), np.bool_) for mask in fit]
        for some, span in self._rounds(offers, fit, bundle):
            some = without_keys(offers, some, gone)
            if not any(mask.any() for mask in some):
                continue
            if self._met(offers, some, bundle, span):
                taken = [mask | own for mask, own in zip(taken, some, strict=True)]
            else:  # with all records of their keys
                pairs = zip(offers, some, strict=True)
                keys = [keys_of(where(each.batch, mask)) for each, mask in pairs]
                self._let_go(keys, bundle)
                gone += keys
        return taken

    def _rounds(
        self, offers: Sequence[Offer], fit: Sequence[Mask], bundle: Bundle
    ) -> Iterator[tuple[list[Mask], TraceSpan | None]]:
        """The records that come together: traced ones alone, to be credited with their results;
        late ones apart from those in time, whose rows must not be emitted as late ones."""
        rest = [mask.copy() for mask in fit]
        for each in bundle.traced.records if bundle.traced is not None else ():
            if 0 <= each.arrival < len(rest) and rest[each.arrival][each.index]:
                alone = [np.zeros(len(mask), np.bool_) for mask in fit]
                alone[each.arrival][each.index] = True
                rest[each.arrival][each.index] = False
                yield alone, each.span
        late = [np.asarray(each.batch.timestamps) < bundle.watermark for each in offers]
        yield [mask & own for mask, own in zip(rest, late, strict=True)], None
        yield [mask & ~own for mask, own in zip(rest, late, strict=True)], None

    def _met(
        self, offers: Sequence[Offer], some: Sequence[Mask], bundle: Bundle, span: TraceSpan | None
    ) -> bool:
        """Keep the changes of some records, and emit them. False where columns cannot: then nothing
        is done."""
        assert self._columns is not None
        kept = [segment.groups for segment in self._kept.segments()]
        try:
            with self._boundary.inside(bundle.count):
                new = [
                    self._columns.taken(each.columns.where(mask[each.inside]))
                    for each, mask in zip(offers, some, strict=True)
                    if each.columns is not None and mask.any()
                ]
                changed = self._columns.changed(pl.concat(new, rechunk=True), kept)
        except Inexact:
            return False
        self.bundles_held += 1
        if changed is not None:
            self._kept.add(changed.rows)
            self._produce_changes((changed.gone, changed.new), bundle, span)
        return True

    def _produce_changes(
        self, changes: Sequence[ColumnBatch], bundle: Bundle, span: TraceSpan | None
    ) -> None:
        outputs = bundle.outputs
        before = outputs.lengths()
        for stream in self._outputs:
            for batch in changes:
                if span is None:
                    outputs.produce_columns(batch.named(stream))
                    continue
                rows = batch.rows()
                for row in zip(rows.keys, rows.values, rows.timestamps, strict=True):
                    outputs.produce(stream, *row)
        if span is not None and bundle.traced is not None:
            bundle.traced.credit(span, before, outputs.lengths())

    def _rows_of(self, segments: Sequence[Left]) -> dict[Key, list[Row]]:
        return rows_by_key([segment.groups for segment in segments])

    def _keep_in_rows(self, key: Key, rows: list[Row]) -> None:
        self._rows.keep(rows)

    def _rows_in(self, rows: list[Row]) -> list[Row]:
        return rows

    # --- keys in rows -----------------------------------------------------------------------------

    def _run_records(self, bundle: Bundle) -> None:
        groups = self._groups(bundle)
        if groups is None:
            super()._run_records(bundle)
            return
        self.bundles_grouped += 1
        self._state.read_ahead([key for key, _ in groups])
        self._at = at = Together()
        for key, group in groups:
            at.key = key
            self._take(key, group)
            if self._state.unsettled:
                self._order.settle(bundle, self._fire_one)

    def _groups(self, bundle: Bundle) -> list[tuple[Key, Group]] | None:
        """The groups that may be among the first; None where a record has to be looked at by
        itself."""
        traced = bundle.traced is not None and bool(bundle.traced.records)
        if traced or self._attempts.avoided.apart:
            return None
        if any(is_behind(arrival.batch.earliest, bundle.watermark) for arrival in bundle.arrivals):
            return None
        batch = columns_of(bundle, self._few)
        if batch is None or self._plan is None:
            return None
        try:
            with self._boundary.inside(bundle.count):
                return list(self._plan.row_groups_of(self._plan.group(batch), batch))
        except Inexact:
            return None

    def _take(self, key: Key, group: Group) -> None:
        earliest, latest, context = group.earliest, group.latest, self._context
        assert earliest is not None
        assert latest is not None
        context.point(key, earliest)
        context.together = True
        self._rows.process_entries(context, group.acc[0], earliest, latest)
        context.together = False
