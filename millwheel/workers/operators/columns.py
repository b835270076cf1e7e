"""Runs a declarative aggregation on columns: whole bundles are grouped at once, and nothing is done per record.

State is in :class:`ColumnWindows`. What columns cannot hold exactly (a float below 2**-37) makes the shard go on in
rows: every open window is handed to the row form, whose results are the same, and when its windows have closed
the shard takes columns again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from millwheel.core.aggregates.aggregation import FILTERED
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.columns.batch import (
    AnyBatch,
    ColumnBatch,
    decode_columns,
    encode_columns,
    frame_bytes,
    frame_from,
    joined,
    key_list,
)
from millwheel.core.columns.fixed_sums import Unfit
from millwheel.core.columns.lazy_polars import pl
from millwheel.core.columns.plan import COUNT, END, KEY, ColumnPlan, PlansByType
from millwheel.core.columns.state.sessions import SessionColumns, without_replaced
from millwheel.core.columns.state.steps import StepColumns, entered
from millwheel.core.columns.windows import ColumnWindows, GroupsKind, Types
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.store_layout import COLUMNS, WINDOW, number8, number_from8, pack
from millwheel.core.model.keys import Key, key_hash
from millwheel.core.model.names import groups_of
from millwheel.core.model.ranges import KeyRange
from millwheel.core.model.records import Batch
from millwheel.core.model.times import held_at
from millwheel.core.pipeline.skew import hash_by_slot, slots_of_keys
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec
from millwheel.core.windowing.calls import Group
from millwheel.core.windowing.contract import rejected
from millwheel.core.windows.lateness import is_complete, open_windows, still_open
from millwheel.core.windows.windows import Sessions, Window
from millwheel.errors import InvariantError, RecordError, invariant
from millwheel.ports import StateStore, StoreView
from millwheel.queries.model import Finding, Query
from millwheel.workers.bundle.bundle import Bundle, Hold
from millwheel.workers.bundle.operator import Operator
from millwheel.workers.operators.callbacks import Decode
from millwheel.workers.operators.windowed import WindowedOperator
from millwheel.workers.state.overlay import Overlay

MOST_BYTES = 32 << 20
"""State that grows with the records goes on in rows beyond this: columns keep all of it in memory."""


class _Stored(msgspec.Struct, array_like=True):
    level: int
    frame: bytes
    slots: int = 0
    kind: int = 0
    types: Types = ()


_decode = msgspec.msgpack.Decoder(_Stored).decode


@dataclass(frozen=True, slots=True)
class ColumnShard:
    """Which shard: its name, its store, and the watermark (µs) up to which its windows have been closed."""

    name: str
    store: StateStore
    closed: int


class _Unknown:
    """How windows are merged whose types nobody knows yet: there are none."""

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        raise InvariantError("there are windows, but no types of their fields")


class ColumnOperator(Operator):
    """The operator of a computation with a column plan. ``rows`` processes everything that columns cannot."""

    def __init__(
        self,
        spec: ComputationSpec,
        plan: ColumnPlan | PlansByType,
        shard: ColumnShard,
        rows: WindowedOperator,
        decode: Decode,
    ) -> None:
        self._spec = spec
        self._by_type = plan if isinstance(plan, PlansByType) else None
        self._known = None if isinstance(plan, PlansByType) else plan
        self._shard = shard
        self._rows = rows
        self._decode = decode
        self._aggregation = compile_aggregation(spec.aggregates, compile_expression, None, spec.condition, spec.stage)
        if isinstance(plan, ColumnPlan):
            rows.finish_row = plan.typed
        self._windows, *self._of_other_types = self._restored(plan)
        if isinstance(plan, PlansByType) and self._windows:
            self._known = plan.plan(dict(self._windows.types))
        self._combined = groups_of(spec.name)
        self._slots = slots_of_keys(spec)
        self._in_rows = self._has_rows()

    @property
    def _plan(self) -> ColumnPlan:
        invariant(self._known is not None, f"{self._spec.name} has met no types yet")
        assert self._known is not None
        return self._known

    def wakes_at(self, now_us: int) -> int:
        return now_us if self._of_other_types else self._rows.wakes_at(now_us)

    def due_at(self) -> int:
        return min(windows.due_at() for windows in (self._windows, *self._of_other_types))

    def run(self, bundle: Bundle) -> None:
        in_rows = self._rows.received(bundle)
        combined = self._take_combined(bundle)
        if self._in_rows and self._may_hold(bundle) and not self._has_rows():
            self._in_rows = False
        if self._of_other_types:  # a merge of shards that have met different types
            self._go_on_in_rows(bundle)
        if not self._in_rows and in_rows:
            # Accumulators do not tell the types of fields that nobody has declared.
            known = self._by_type is None
            try:
                combined += [self._plan.merge([self._plan.from_row_groups(in_rows)])] if known else []
            except Unfit:
                known = False
            if known:
                in_rows = []
            else:
                self._go_on_in_rows(bundle)
        if not self._in_rows:
            self._run_columns(bundle, combined)
        elif self._windows:  # a merge of a shard in columns with one in rows
            self._go_on_in_rows(bundle)
        if self._in_rows:
            for groups in combined:
                self._rows.take_groups(self._plan.row_groups(groups), bundle)
            self._rows.take_groups(in_rows, bundle)
            self._rows.run(bundle)
            self._windows.close(bundle.watermark)
        write_segments(self._windows, self._shard.name, bundle.overlay, self._slots)

    def hold(self, now_us: int) -> Hold:
        own = Hold(held_at(self.due_at()), "window (in columns), which outputs as it closes")
        return min(own, self._rows.hold(now_us), key=lambda hold: hold.at)

    def open_windows(self, key: Key) -> list[Window]:
        """The windows of a key that hold state, ordered by end."""
        found = self._windows.open_windows(self._plan.of_key(key)) if self._known is not None else []
        return sorted([*found, *self._rows.open_windows(key)], key=lambda window: (window.end, window.start))

    def answer(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        """Its open windows."""
        mine = self._windows.of_key(self._plan, query.key) if self._windows else []
        found = [(window, self._aggregation.result(acc)) for window, acc in mine]
        return self._rows.answer_with(query, found, state, watermark_us)

    # --- a bundle ------------------------------------------------------------------------------------------

    def _take_combined(self, bundle: Bundle) -> list[pl.DataFrame]:
        """What sources have grouped, without windows that have closed; only records are left in the bundle."""
        mine = [arrival.batch for arrival in bundle.arrivals if arrival.batch.stream == self._combined]
        if not mine:
            return []
        bundle.arrivals = [arrival for arrival in bundle.arrivals if arrival.batch.stream != self._combined]
        frames = []
        for batch in mine:
            assert isinstance(batch, ColumnBatch)
            groups = batch.frame.with_columns(batch.keys.alias(KEY)).select(list(self._plan.schema))
            if batch.earliest < bundle.watermark:
                closed = ~still_open(pl.col(END), bundle.watermark)
                bundle.count("late", int(groups.filter(closed)[COUNT].sum()))
                groups = groups.filter(~closed)
            frames.append(groups)
        return frames

    def _run_columns(self, bundle: Bundle, combined: list[pl.DataFrame]) -> None:
        """Take all of a bundle, or, where columns cannot hold it, nothing."""
        told: list[Callable[[], None]] = []
        try:
            self._learn_types(bundle)
            bundles = [self._groups(batch, bundle, told) for batch in _bundled(bundle)]
            closed = self._windows.close(bundle.watermark)
        except Unfit:
            self._go_on_in_rows(bundle)
            return
        # Only once all of them fit: what is in the columns, counted as late or a dead letter already would be so again
        # when the bundle goes by rows. See test_a_bundle_that_no_column_can_hold_has_its_dead_letters_once.
        # And only once windows have closed: a record that comes behind the end of a session is of another one.
        for groups in [*combined, *bundles]:
            self._windows.add(groups)
        combined.clear()
        for tell in told:
            tell()
        bundle.arrivals = []
        if closed is not None:
            self._emit(closed, bundle)
        if self._windows and self._plan.grows and self._windows.size() > MOST_BYTES:
            self._go_on_in_rows(bundle)

    def _may_hold(self, bundle: Bundle) -> bool:
        """Whether columns may hold what has come. Rows have types only where they are declared."""
        batches = [arrival.batch for arrival in bundle.arrivals]
        return self._by_type is None or (bool(batches) and all(isinstance(batch, ColumnBatch) for batch in batches))

    def _learn_types(self, bundle: Bundle) -> None:
        """The plan of the records in a bundle, where no types are declared. Unfit when it is not that of the open
        windows."""
        batches = [arrival.batch for arrival in bundle.arrivals if len(arrival.batch)]
        if self._by_type is None or not batches:
            return
        plans = {id(plan): plan for plan in map(self._by_type.of_any, batches)}
        plan = plans.popitem()[1]
        if plans or plan is None or not plan.fires_once or (self._windows and plan is not self._known):
            raise Unfit
        if plan is not self._known:
            self._known = plan
            self._windows.go_on_with(plan, plan.inferred)

    def _groups(self, batch: AnyBatch, bundle: Bundle, told: list[Callable[[], None]]) -> pl.DataFrame:
        """The groups of a batch, without those of windows that have closed. ``told`` gets what is to be said of the
        records that are in none. Raises Unfit."""
        late_until = self._windows.late_until(bundle.watermark)
        if not isinstance(batch, ColumnBatch):
            groups = self._plan.from_row_groups(self._row_groups(batch, bundle, told))
        else:
            if isinstance(self._plan.window, Sessions) and (late := self._plan.late(batch, late_until)) is not None:
                # First, since they would join sessions of the bundle.
                told.append(partial(bundle.count, "late", self._plan.count_late(batch, late_until)))
                batch = batch.where(~late)
            groups = self._plan.group(batch)
            if groups.height and is_complete(groups[END].min(), late_until):  # type: ignore[arg-type]
                told.append(partial(bundle.count, "late", self._plan.count_late(batch, late_until)))
                # These windows have fired and are forgotten. Added again they would fire a second time, with the late
                # records alone.
                groups = groups.filter(still_open(pl.col(END), late_until))
        return self._windows.entering(groups, bundle.watermark)

    def _go_on_in_rows(self, bundle: Bundle) -> None:
        self._in_rows = True
        if self._windows:
            groups = self._plan.row_groups(self._windows.all_groups())
            closed = self._windows.closed if isinstance(self._windows, StepColumns) else None
            self._rows.take_groups(groups, bundle, closed)
            self._windows.clear()
        for windows in self._of_other_types:
            assert self._by_type is not None
            plan = self._by_type.plan(dict(windows.types))
            assert plan is not None
            self._rows.take_groups(plan.row_groups(windows.all_groups()), bundle)
            windows.clear()
            write_segments(windows, self._shard.name, bundle.overlay)
        self._of_other_types = []

    def _emit(self, closed: pl.DataFrame, bundle: Bundle) -> None:
        if self._spec.stage is AggregationStage.PARTIAL:  # accumulators have no column form
            self._emit_rows(closed, bundle)
            return
        try:
            frame = self._plan.results(closed)
        except Unfit:
            self._emit_rows(closed, bundle)
            return
        stamps = closed[END].to_numpy() - 1
        for stream in self._spec.outputs:
            bundle.outputs.produce_columns(ColumnBatch(stream, np.array([], np.int64), stamps, closed[KEY], frame))

    def _emit_rows(self, closed: pl.DataFrame, bundle: Bundle) -> None:
        """Results of which no column can hold all: a sum beyond 64 bits, say."""
        for key, group in self._plan.row_groups(closed):
            start, end = group.window
            names = self._plan.key_names
            row = dict(zip(names, key, strict=True)) if len(names) > 1 else {names[0]: key}
            row |= {"window_start": start, "window_end": end}
            row.update(self._aggregation.result(group.acc))
            for stream in self._spec.outputs:
                bundle.outputs.produce(stream, key, self._plan.typed(row), end - 1)

    def _row_groups(self, batch: Batch, bundle: Bundle, told: list[Callable[[], None]]) -> list[tuple[Key, Group]]:
        """The groups of records that come as rows: their input had something in it that columns cannot say."""
        prepared: dict[tuple[Key, Window], tuple[list[Any], list[int]]] = {}
        late_until = self._windows.late_until(bundle.watermark)
        values = self._decode(batch.stream, batch.values)
        for key, value, timestamp in zip(batch.keys, values, batch.timestamps, strict=True):
            try:
                ready = self._aggregation.prepare(value)
            except RecordError as ex:
                told.append(partial(self._rows.refuse, rejected(key, value, timestamp, ex), None, bundle))
                continue
            if ready is FILTERED:
                continue
            windows = open_windows(self._plan.window.assign(timestamp), late_until)
            for window in windows:
                taken = prepared.setdefault((key, window), ([], []))
                taken[0].append(ready)
                taken[1].append(timestamp)
            if not windows:
                told.append(partial(bundle.count, "late"))
        made = []
        for (key, window), (ready, stamps) in prepared.items():
            acc = self._aggregation.add_many(self._aggregation.create(), ready, stamps)
            made.append((key, Group(window, acc, len(stamps), None, None)))
        return made

    # --- the store ---------------------------------------------------------------------------------------

    def _restored(self, plan: ColumnPlan | PlansByType) -> list[ColumnWindows]:
        """The open windows as the store has them: those of the plan first, then those of other types."""
        if isinstance(plan, ColumnPlan):
            windows = windows_of(plan, self._shard.closed)
            restore_segments(windows, self._shard)
            return [windows]
        found: dict[Types, ColumnWindows] = {}
        for number, segment in _numbered(self._shard):
            known = plan.plan(dict(segment.types))
            invariant(known is not None, f"{self._spec.name}: no plan for the types of its windows, {segment.types}")
            assert known is not None
            windows = found.setdefault(segment.types, ColumnWindows(known, known.inferred))
            windows.restore(number, segment.level, segment.groups, self._shard.closed)
        # Those of which all have closed come last: what is left of them in the store is removed with the others.
        return sorted(found.values(), key=lambda windows: not windows) or [ColumnWindows(_Unknown())]

    def _has_rows(self) -> bool:
        return next(iter(self._shard.store.scan(WINDOW)), None) is not None


def _bundled(bundle: Bundle) -> list[AnyBatch]:
    """All arrived columns as one batch."""
    batches = [arrival.batch for arrival in bundle.arrivals if len(arrival.batch)]
    columns = [batch for batch in batches if isinstance(batch, ColumnBatch)]
    rows: list[AnyBatch] = [batch for batch in batches if not isinstance(batch, ColumnBatch)]
    return [*rows, joined(columns)] if columns else rows


def windows_of(plan: ColumnPlan, closed: int) -> ColumnWindows:
    """The windows of a shard of which those up to ``closed`` have fired."""
    if plan.steps is not None:
        return StepColumns(plan, plan.steps, closed)
    return SessionColumns(plan) if isinstance(plan.window, Sessions) else ColumnWindows(plan)


def restore_segments(windows: ColumnWindows, shard: ColumnShard) -> None:
    """The open windows as the store of a shard has them."""
    for number, segment in _numbered(shard):
        windows.restore(number, segment.level, segment.groups, shard.closed)


def _numbered(shard: ColumnShard) -> Iterator[tuple[int, Segment]]:
    """The columnar segments of a shard, in order of their numbers."""
    prefix = COLUMNS + pack(shard.name)
    for store_key, data in shard.store.scan(prefix):
        yield number_from8(store_key[len(prefix) :]), _segment_from(data)


def write_segments(windows: ColumnWindows, shard: str, overlay: Overlay, slots: int = 0) -> None:
    """The changes of a bundle go into the store. ``slots``: as in :class:`Segment`."""
    changes = windows.take_changes()
    for number in changes.gone:
        overlay.delete(COLUMNS + pack(shard) + number8(number))
    for segment in changes.new:
        kept = Segment(segment.level, segment.groups, windows.kind, slots, windows.types)
        overlay.put(*segment_entry(shard, segment.number, kept))


def warm_up(plan: ColumnPlan, stream: str, frame: pl.DataFrame) -> None:
    """Group some records by a plan: code is loaded, and memory is there."""
    order = np.arange(frame.height)
    whole = ColumnBatch(stream, order, order, plan.keys_of(frame, order), frame.select(plan.needs))
    parts = [decode_columns(encode_columns(part)) for _, part in whole.split((order % 4).astype(np.int32))]
    groups = [plan.group(part) for part in parts]
    if plan.fires_once:
        frame_from(frame_bytes(plan.merge(groups), "lz4"))


@dataclass(frozen=True, slots=True)
class Segment:
    """A columnar segment as it is stored. ``slots``: above 0 its keys are those of so many instances with fixed places,
    and hashed by them. ``types`` are those that were inferred of undeclared fields."""

    level: int
    groups: pl.DataFrame
    kind: GroupsKind = GroupsKind.WINDOWS
    slots: int = 0
    types: Types = ()


def segments_within(store: StateStore, within: KeyRange, closed: int) -> list[Segment]:
    """The segments of a store, without keys of other ranges and without windows that have closed. They mean the same
    for a shard in which others have closed fewer windows."""
    found = []
    for segment in _segments(store):
        hashed = hash_by_slot(segment.slots) if segment.slots else key_hash
        mine = [hashed(key) in within for key in key_list(segment.groups[KEY])]
        found.append(replace(segment, groups=segment.groups.filter(pl.Series(mine, dtype=pl.Boolean))))
    kept = [
        replace(segment, groups=entered(groups, closed) if segment.kind is GroupsKind.STEPS else groups)
        for segment, groups in zip(found, _open_groups(found, closed), strict=True)
    ]
    return [segment for segment in kept if segment.groups.height]


def _open_groups(segments: Sequence[Segment], closed: int) -> list[pl.DataFrame]:
    frames = [segment.groups.filter(still_open(pl.col(END), closed)) for segment in segments]
    return without_replaced(frames) if any(segment.kind is GroupsKind.SESSIONS for segment in segments) else frames


def segment_entry(shard: str, number: int, segment: Segment) -> tuple[bytes, bytes]:
    """A columnar segment as an entry of the store of ``shard``. Packed it takes a quarter of the disk's time, which is
    worth more than the millisecond per megabyte that packing takes."""
    stored = _Stored(segment.level, frame_bytes(segment.groups, "lz4"), segment.slots, segment.kind, segment.types)
    return COLUMNS + pack(shard) + number8(number), pack(stored)


def open_groups(store: StateStore | StoreView, closed: int) -> dict[Types, list[pl.DataFrame]]:
    """The groups in a store of which windows up to ``closed`` have fired, by the types that were inferred."""
    found: dict[Types, list[Segment]] = {}
    for segment in _segments(store):
        found.setdefault(segment.types, []).append(segment)
    return {types: _open_groups(segments, closed) for types, segments in found.items()}


def segments_of(store: StateStore | StoreView) -> Iterator[pl.DataFrame]:
    """The groups of each segment in a store."""
    return (segment.groups for segment in _segments(store))


def _segments(store: StateStore | StoreView) -> Iterator[Segment]:
    return (_segment_from(data) for _, data in store.scan(COLUMNS))


def _segment_from(data: bytes) -> Segment:
    stored = _decode(data)
    return Segment(stored.level, frame_from(stored.frame), GroupsKind(stored.kind), stored.slots, stored.types)
