"""Runs ``top`` and ``deduplicate`` with ``keep`` on whole bundles: what is kept of the keys of a
shard is in columnar segments, a bundle meets it in one operation, and what changes leaves as
columns (:mod:`millwheel.core.ranked.segments`).

Every key is either in columns or in rows (top.py). Few records are as quick in rows, so a shard
takes whole bundles from the first that is worth it; the keys that rows have go on there. Of more
than ``_MOST_BYTES`` the keys without a change for the longest time go on in rows, and so does all
that only small bundles come for: some keys in each bundle
(:mod:`millwheel.core.columns.state.columns_to_rows`). So does a key of which a record needs a look.
For keys in rows, columns choose the records of a bundle that may be among the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import numpy as np

from millwheel.adapters.ports import StoreView
from millwheel.core.aggregates.columns import Unfit
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.columns_to_rows import (
    Left,
    is_among,
    keys_of,
    where,
)
from millwheel.core.columns.windows import ColumnarSegment
from millwheel.core.formats.store_layout import STATE, key_in
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import DeadLetter
from millwheel.core.model.times import MIN_TIME
from millwheel.core.ranked.ranking import Row
from millwheel.core.ranked.segments import ROW, FirstColumns, FirstRowSegments, Mask, rows_by_key
from millwheel.core.tracing.spans import TraceSpan
from millwheel.core.windows.calls import Group
from millwheel.core.windows.lateness import is_behind
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.operator import Validated
from millwheel.engine.workers.operators.batch_callbacks import BatchOperator
from millwheel.engine.workers.operators.callbacks import Together
from millwheel.engine.workers.operators.form_choice import FormChoice, left_in
from millwheel.engine.workers.operators.ranked.top import FirstRows
from millwheel.engine.workers.operators.windows.grouped import columns_of
from millwheel.engine.workers.state.column_segments import (
    ColumnShard,
    restore_segments,
    validate_segments,
    write_segments,
)
from millwheel.errors import RecordError

_MOST_BYTES = 64 << 20
"""Bytes of the kept rows of a shard; once there are more, half of them go by rows."""
_FAN = 16
"""Segments of one size that are merged into one: a bundle looks at all of them."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """A batch, the records of it that are ``inside`` its ``columns`` (None: none), and which of
    those fit."""

    batch: AnyBatch
    columns: ColumnBatch | None
    inside: Mask
    fits: Mask


class FirstRowsOperator(BatchOperator, Validated):
    """See the head of this file."""

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
        super().__init__(*arguments)
        assert isinstance(self._instance, FirstRows)
        self._rows: FirstRows = self._instance
        self._spec, self._pipeline = arguments[0], arguments[1]
        self._outputs = self._spec.outputs
        self._plan = plan
        self._columns = columns
        self.in_columns = columns is not None
        """Whether some keys may be in columns."""
        self._shard = shard
        self._few = few
        self._boundary = ColumnBoundary(self._spec.name)
        self.bundles_grouped = self.bundles_held = 0
        self._kept = FirstRowSegments(_FAN)
        self._form = FormChoice(self._kept, self._few, _MOST_BYTES, self._has_rows)
        restore_segments(self._kept, shard)
        types = [(each.groups.schema[ROW], each.groups.schema[KEY]) for each in self._segments()]
        alike = all(each == types[0] for each in types)
        self._of_others = not alike or columns is None or not all(starmap(columns.holds, types))
        """What columns hold is of another version of the pipeline, or of shards with other
        fields."""

    def _segments(self) -> list[ColumnarSegment]:
        return self._kept.segments()

    def validate(self, state: StoreView) -> None:
        validate_segments([self._kept], self._shard.name, state)

    def kept(self) -> dict[Key, list[Row]]:
        """The rows of each key, which are the same in either form. For tests, between bundles."""
        kept = rows_by_key([segment.groups for segment in self._kept.segments()])
        for key in {key_in(entry) for entry, _ in self._shard.store.scan(STATE)}:
            self._context.point(key, MIN_TIME)
            kept[key] = self._rows.kept()
        self._state.forget()
        return kept

    def run(self, bundle: Bundle) -> None:
        count = sum(len(arrival.batch) for arrival in bundle.arrivals)
        self._context.begin(bundle)
        if self._of_others:
            self._hand_over([Left(each.groups, MIN_TIME) for each in self._segments()], bundle)
            self._kept.clear()
            self._of_others = False
        if self._columns is not None:
            self._form.choose(count)
        if count and (self._kept or not self._form.in_rows):
            self._take_in_columns(bundle)
        super().run(bundle)
        self._form.took_in_rows(bundle.arrivals)
        for segments in self._form.leave(count):
            self._hand_over(segments, bundle)
        write_segments(self._kept, self._shard.name, bundle.overlay)

    # --- keys in columns --------------------------------------------------------------------------

    def _take_in_columns(self, bundle: Bundle) -> None:
        """Take the records whose keys are, or go, in columns. The others are left in the
        bundle."""
        offers, like = [], self._kept.row_type
        for arrival in bundle.arrivals:
            offers.append(offer := self._offer(arrival.batch, like, bundle))
            if like is None and offer.columns is not None and offer.fits.any():
                like = pl.Struct(dict(offer.columns.frame.schema))
        gone = [keys_of(where(each.batch, ~each.fits)) for each in offers if not each.fits.all()]
        self._let_go(gone, bundle)
        among = self._form.in_columns([each.batch for each in offers], self._state.held)
        fit = [each.fits & own for each, own in zip(offers, among, strict=True)]
        taken = [np.zeros(len(mask), np.bool_) for mask in fit]
        for some, span in self._companies(offers, fit, bundle):
            if gone:
                some = [
                    mask & ~is_among(keys_of(each.batch), gone)
                    for each, mask in zip(offers, some, strict=True)
                ]
            if not any(mask.any() for mask in some):
                continue
            if self._met(offers, some, bundle, span):
                taken = [mask | own for mask, own in zip(taken, some, strict=True)]
            else:  # with all records of their keys
                pairs = zip(offers, some, strict=True)
                keys = [keys_of(where(each.batch, mask)) for each, mask in pairs]
                self._let_go(keys, bundle)
                gone += keys
        left_in(bundle, taken)

    def _offer(self, batch: AnyBatch, like: Any, bundle: Bundle) -> _Offer:
        """The records of a batch that columns can have."""
        assert self._columns is not None
        none = np.zeros(len(batch), np.bool_)
        try:
            with self._boundary.inside(bundle.count):
                if isinstance(batch, ColumnBatch):
                    return _Offer(batch, batch, ~none, self._columns.fitting(batch, like))
                records = list(self._records(batch, ChannelName("")))
                values = [record.value for record in records]
                given = batch.stream, batch.keys, values, batch.timestamps
                columns, inside = self._columns.in_columns(*given)
                fits = inside.copy()
                fits[inside] = self._columns.fitting(columns, like)
                return _Offer(batch, columns, inside, fits)
        except Unfit:
            return _Offer(batch, None, none, none)

    def _let_go(self, keys: Sequence[pl.Series], bundle: Bundle) -> None:
        """All that columns hold of some keys goes on in rows."""
        self._hand_over(self._form.leaving.taken_out(keys), bundle)
        self._form.some_in_rows |= bool(keys)

    def _companies(
        self, offers: Sequence[_Offer], fit: Sequence[Mask], bundle: Bundle
    ) -> Iterator[tuple[list[Mask], TraceSpan | None]]:
        """What comes together: traced records alone, as what they make is to be known; late records
        apart from those in time, whose rows must not be told as late ones."""
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
        self, offers: Sequence[_Offer], some: Sequence[Mask], bundle: Bundle, span: TraceSpan | None
    ) -> bool:
        """Keep what some records change, and tell it. False where columns cannot: then nothing is
        done."""
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
        except Unfit:
            return False
        self.bundles_held += 1
        if changed is not None:
            self._kept.add(changed.rows)
            self._tell((changed.gone, changed.new), bundle, span)
        return True

    def _tell(self, changes: Sequence[ColumnBatch], bundle: Bundle, span: TraceSpan | None) -> None:
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

    def _hand_over(self, segments: Sequence[Left], bundle: Bundle) -> None:
        """Keys that were held in columns go on in rows."""
        self._form.some_in_rows |= bool(segments)
        by_key = rows_by_key([segment.groups for segment in segments])
        self._state.read_ahead(list(by_key))
        for key, rows in by_key.items():
            self._context.point(key, bundle.watermark)
            try:
                self._rows.keep(rows)
                changes = self._state.encoded()
            except RecordError as ex:  # they are more than limits.state, which has been lowered
                self._state.forget()
                for value, at in rows:
                    self._refuse(bundle, value, at, ex)
            else:
                self._state.write(changes)

    def _refuse(self, bundle: Bundle, value: Any, at: int, ex: RecordError) -> None:
        """A row of the current key that cannot be kept is a dead letter."""
        about = self._spec.name, self._spec.inputs[0].stream
        letter = DeadLetter(self._pipeline, *about, str(ex), self._context.key, value, at)
        bundle.dead_letter(letter, max(at, bundle.floor))

    def _has_rows(self) -> bool:
        return next(iter(self._shard.store.scan(STATE)), None) is not None

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
                self._settle(bundle, self._fire_one)

    def _groups(self, bundle: Bundle) -> list[tuple[Key, Group]] | None:
        """What may be among the first; None where a record has to be looked at by itself."""
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
                return list(self._plan.row_groups(self._plan.group(batch), batch))
        except Unfit:
            return None

    def _take(self, key: Key, group: Group) -> None:
        earliest, latest, context = group.earliest, group.latest, self._context
        assert earliest is not None
        assert latest is not None
        context.point(key, earliest)
        context.together = True
        self._rows.process_entries(context, group.acc[0], earliest, latest)
        context.together = False
