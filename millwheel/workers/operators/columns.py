"""Runs a declarative aggregation on columns: whole bundles are grouped at once, and nothing is done per record.

State is in :class:`ColumnWindows`. What columns cannot hold exactly (a float below 2**-37) makes the shard go on in
rows: every open window is handed to the row form, whose results are the same, and when its windows have closed
the shard takes columns again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

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
)
from millwheel.core.columns.fixed_sums import Unfit
from millwheel.core.columns.lazy_polars import pl
from millwheel.core.columns.plan import COUNT, END, KEY, ColumnPlan
from millwheel.core.columns.state.inferred import PlansByType, types_told
from millwheel.core.columns.state.sessions import SessionColumns
from millwheel.core.columns.state.steps import StepColumns
from millwheel.core.columns.windows import ColumnWindows, Types
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.store_layout import WINDOW
from millwheel.core.model.keys import Key
from millwheel.core.model.names import groups_of
from millwheel.core.model.records import Batch
from millwheel.core.model.times import held_at
from millwheel.core.pipeline.skew import slots_of_keys
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec
from millwheel.core.windowing.calls import Group
from millwheel.core.windowing.contract import rejected
from millwheel.core.windows.lateness import is_complete, open_windows, still_open
from millwheel.core.windows.windows import Sessions, Window
from millwheel.errors import InvariantError, RecordError, invariant
from millwheel.ports import StoreView
from millwheel.queries.model import Finding, Query
from millwheel.workers.bundle.bundle import RECORD, Bundle, Hold
from millwheel.workers.bundle.operator import Operator
from millwheel.workers.operators.callbacks import Decode
from millwheel.workers.operators.windowed import WindowedOperator
from millwheel.workers.state.column_segments import ColumnShard, numbered_segments, restore_segments, write_segments

MOST_BYTES = 32 << 20
"""State that grows with the records goes on in rows beyond this: columns keep all of it in memory."""


@dataclass(frozen=True, slots=True)
class _Combined:
    """Groups of open windows that a sender has made of records, by its plan."""

    plan: ColumnPlan
    groups: pl.DataFrame


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
        if self._in_rows and self._may_hold(bundle, combined) and not self._has_rows():
            self._in_rows = False
        if self._of_other_types:  # a merge of shards that have met different types
            self._go_on_in_rows(bundle)
        if not self._in_rows and in_rows:
            # Accumulators do not tell the types of fields that nobody has declared.
            known = self._by_type is None
            try:
                combined += [self._of_rows(in_rows)] if known else []
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
            for each in combined:
                self._rows.take_groups(each.plan.row_groups(each.groups), bundle)
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

    def _of_rows(self, groups: list[tuple[Key, Group]]) -> _Combined:
        """Groups that came in rows. Raises Unfit."""
        return _Combined(self._plan, self._plan.merge([self._plan.from_row_groups(groups)]))

    def _take_combined(self, bundle: Bundle) -> list[_Combined]:
        """What senders have grouped, without windows that have closed; only records are left in the bundle."""
        mine = [arrival.batch for arrival in bundle.arrivals if arrival.batch.stream == self._combined]
        if not mine:
            return []
        bundle.arrivals = [arrival for arrival in bundle.arrivals if arrival.batch.stream != self._combined]
        found = []
        for batch in mine:
            assert isinstance(batch, ColumnBatch)
            plan = self._plan if self._by_type is None else self._by_type.plan(dict(types_told(batch.frame)))
            assert plan is not None  # by which the sender has grouped
            groups = batch.frame.with_columns(batch.keys.alias(KEY)).select(list(plan.schema))
            bundle.try_(RECORD, int(groups[COUNT].sum()) - groups.height)
            if batch.earliest < bundle.watermark:
                closed = ~still_open(pl.col(END), bundle.watermark)
                bundle.count("late", int(groups.filter(closed)[COUNT].sum()))
                groups = groups.filter(~closed)
            found.append(_Combined(plan, groups))
        return found

    def _run_columns(self, bundle: Bundle, combined: list[_Combined]) -> None:
        """Take all of a bundle, or, where columns cannot hold it, nothing."""
        told: list[Callable[[], None]] = []
        try:
            self._learn_types(bundle, combined)
            bundles = [self._groups(batch, bundle, told) for batch in _bundled(bundle)]
            closed = self._windows.close(bundle.watermark)
        except Unfit:
            self._go_on_in_rows(bundle)
            return
        # Only once all of them fit: what is in the columns, counted as late or a dead letter already would be so again
        # when the bundle goes by rows. See test_a_bundle_that_no_column_can_hold_has_its_dead_letters_once.
        # And only once windows have closed: a record that comes behind the end of a session is of another one.
        for groups in [*(each.groups for each in combined), *bundles]:
            self._windows.add(groups)
        combined.clear()
        for tell in told:
            tell()
        bundle.arrivals = []
        if closed is not None:
            self._emit(closed, bundle)
        if self._windows and self._plan.grows and self._windows.size() > MOST_BYTES:
            self._go_on_in_rows(bundle)

    def _may_hold(self, bundle: Bundle, combined: Sequence[_Combined]) -> bool:
        """Whether columns may hold what has come. Rows have types only where they are declared."""
        batches = [arrival.batch for arrival in bundle.arrivals]
        something = bool(batches or combined)
        return self._by_type is None or (something and all(isinstance(batch, ColumnBatch) for batch in batches))

    def _learn_types(self, bundle: Bundle, combined: Sequence[_Combined]) -> None:
        """The plan of what has come in a bundle, where no types are declared. Unfit when it is not that of the open
        windows."""
        if self._by_type is None:
            return
        batches = [arrival.batch for arrival in bundle.arrivals if len(arrival.batch)]
        found = [*map(self._by_type.of_any, batches), *(each.plan for each in combined if each.groups.height)]
        if not found:
            return
        plan = found[0]
        if plan is None or not plan.fires_once or any(each is not plan for each in found):
            raise Unfit
        if plan is self._known:
            return
        if self._windows:
            raise Unfit
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
        for number, segment in numbered_segments(self._shard):
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


def warm_up(plan: ColumnPlan, stream: str, frame: pl.DataFrame) -> None:
    """Group some records by a plan: code is loaded, and memory is there."""
    order = np.arange(frame.height)
    whole = ColumnBatch(stream, order, order, plan.keys_of(frame, order), frame.select(plan.needs))
    parts = [decode_columns(encode_columns(part)) for _, part in whole.split((order % 4).astype(np.int32))]
    with suppress(Unfit):  # made-up records may have what a calculation cannot use, such as a divisor of 0
        groups = [plan.group(part) for part in parts]
        if plan.fires_once:
            frame_from(frame_bytes(plan.merge(groups), "lz4"))
