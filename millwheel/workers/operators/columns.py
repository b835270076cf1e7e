"""Runs a declarative aggregation on columns: whole bundles are grouped at once, and nothing is done per record.

State is in :class:`ColumnWindows`. What columns cannot hold exactly (a float below 2**-37) makes the shard go on in
rows: every open window is handed to the row form, whose results are the same, and when its windows have closed
the shard takes columns again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

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
from millwheel.core.columns.state.kept import KeptColumns
from millwheel.core.columns.state.sessions import SessionColumns
from millwheel.core.columns.state.steps import StepColumns
from millwheel.core.columns.windows import ColumnWindows, Types, results_of
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.store_layout import WINDOW, slot_of
from millwheel.core.model.keys import Key
from millwheel.core.model.names import groups_of
from millwheel.core.model.times import MIN_TIME, held_at
from millwheel.core.pipeline.skew import slots_of_keys
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec
from millwheel.core.windowing.calls import Group
from millwheel.core.windows.lateness import final_until, is_complete, still_open
from millwheel.core.windows.windows import Sessions, Window
from millwheel.errors import InvariantError, invariant
from millwheel.ports import StoreView
from millwheel.queries.model import Finding, Query
from millwheel.workers.bundle.bundle import RECORD, Bundle, Hold
from millwheel.workers.bundle.operator import Operator
from millwheel.workers.bundle.record_groups import RecordGroups, Told
from millwheel.workers.operators.callbacks import Decode
from millwheel.workers.operators.windowed import WindowedOperator
from millwheel.workers.state.column_segments import (
    ColumnShard,
    numbered_segments,
    restore_segment,
    restore_segments,
    write_segments,
)

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
        self._aggregation = compile_aggregation(spec.aggregates, compile_expression, None, spec.condition, spec.stage)
        self._records = RecordGroups(self._aggregation, rows.refuse, decode, spec.late == "drop")
        if isinstance(plan, ColumnPlan):
            rows.finish_row = plan.typed
        self._windows, *self._of_other_types = self._restored(plan)
        if isinstance(plan, PlansByType) and self._windows:
            self._known = plan.plan(dict(self._windows.types))
        self._slots = slots_of_keys(spec)
        self._open_until = MIN_TIME
        self._in_rows = self._has_rows(shard.closed)

    @property
    def emits_late(self) -> bool:
        return self._rows.emits_late

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
        if self._in_rows and self._may_hold(bundle, combined) and not self._has_rows(bundle.watermark):
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
        fires_at = min(windows.fires_at() for windows in (self._windows, *self._of_other_types))
        own = Hold(held_at(fires_at), "window (in columns), which outputs as it closes")
        return min(own, self._rows.hold(now_us), key=lambda hold: hold.at)

    def open_windows(self, key: Key) -> list[Window]:
        """The windows of a key that hold state, ordered by end."""
        found = self._windows.open_windows(self._plan.of_key(key)) if self._known is not None else []
        return sorted([*found, *self._rows.open_windows(key)], key=lambda window: (window.end, window.start))

    def answer(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        """Its open windows."""
        mine = self._windows.of_key(self._plan, query.key) if self._windows else []
        found = results_of(self._plan, mine, self._aggregation, watermark_us) if mine else []
        return self._rows.answer_with(query, found, state, watermark_us)

    # --- a bundle ------------------------------------------------------------------------------------------

    def _of_rows(self, groups: list[tuple[Key, Group]]) -> _Combined:
        """Groups that came in rows. Raises Unfit."""
        return _Combined(self._plan, self._plan.merge([self._plan.from_row_groups(groups)]))

    def _take_combined(self, bundle: Bundle) -> list[_Combined]:
        """What senders have grouped, without windows that have closed; only records are left in the bundle."""
        name = groups_of(self._spec.name)
        mine = [arrival.batch for arrival in bundle.arrivals if arrival.batch.stream == name]
        if not mine:
            return []
        bundle.arrivals = [arrival for arrival in bundle.arrivals if arrival.batch.stream != name]
        found = []
        for batch in mine:
            assert isinstance(batch, ColumnBatch)
            plan = self._plan if self._by_type is None else self._by_type.plan(dict(types_told(batch.frame)))
            assert plan is not None  # by which the sender has grouped
            groups = batch.frame.with_columns(batch.keys.alias(KEY)).select(list(plan.schema))
            bundle.try_(RECORD, int(groups[COUNT].sum()) - groups.height)
            late_until = final_until(bundle.watermark, plan.lateness_us)
            if batch.earliest < late_until:
                closed = ~still_open(pl.col(END), late_until)
                bundle.count("late", int(groups.filter(closed)[COUNT].sum()))
                groups = groups.filter(~closed)
            found.append(_Combined(plan, groups))
        return found

    def _run_columns(self, bundle: Bundle, combined: list[_Combined]) -> None:
        """Take all of a bundle, or, where columns cannot hold it, nothing."""
        told: Told = []
        try:
            self._learn_types(bundle, combined)
            bundles = [self._records.of(batch, self._plan, self._windows, bundle, told) for batch in _bundled(bundle)]
            closed = self._windows.close(bundle.watermark)
        except Unfit:
            self._go_on_in_rows(bundle)
            return
        # Only once all of them fit: what is in the columns, counted as late or a dead letter already would be so again
        # when the bundle goes by rows. See test_a_bundle_that_no_column_can_hold_has_its_dead_letters_once.
        # And only once windows have closed: a record that comes behind the end of a session is of another one.
        late: list[pl.DataFrame] = []
        for groups in [*(each.groups for each in combined), *bundles]:
            on_time, behind = self._windows.on_time(groups, bundle.watermark)
            self._windows.add(on_time)
            late += [] if behind is None else [behind]
        combined.clear()
        bundle.arrivals = []
        for tell in told:
            tell()
        if closed is not None:
            self._emit(closed, bundle)
        if self._windows.lateness_us or self._spec.late != "drop":
            self._rows.run_with(self._late_groups(late, bundle), bundle)
            bundle.arrivals = []
        if self._windows and self._plan.grows and self._windows.size() > MOST_BYTES:
            self._go_on_in_rows(bundle)

    def _late_groups(self, late: Sequence[pl.DataFrame], bundle: Bundle) -> list[tuple[Key, Group]]:
        """Groups of windows that have fired, for the row form. It gets these windows, as they fired."""
        if not late:
            return []
        together = self._plan.merge(late)
        fired = self._windows.fired(together)
        if fired is not None:
            self._rows.take_groups(self._plan.row_groups(fired), bundle, bundle.watermark)
        return list(self._plan.row_groups(together))

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

    def _go_on_in_rows(self, bundle: Bundle) -> None:
        self._in_rows = True
        if self._windows:
            groups = self._plan.row_groups(self._windows.all_groups())
            closed = self._windows.closed if isinstance(self._windows, StepColumns) else None
            self._hand_over_fired(self._plan, self._windows, bundle)
            self._rows.take_groups(groups, bundle, closed)
            self._windows.clear()
        for windows in self._of_other_types:
            assert self._by_type is not None
            plan = self._by_type.plan(dict(windows.types))
            assert plan is not None
            self._hand_over_fired(plan, windows, bundle)
            self._rows.take_groups(plan.row_groups(windows.all_groups()), bundle)
            windows.clear()
            write_segments(windows, self._shard.name, bundle.overlay)
        self._of_other_types = []

    def _hand_over_fired(self, plan: ColumnPlan, windows: ColumnWindows, bundle: Bundle) -> None:
        fired = windows.fired()
        if fired is not None:
            self._rows.take_groups(plan.row_groups(fired), bundle, bundle.watermark)

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
            windows = found.setdefault(segment.types, windows_of(known, self._shard.closed))
            restore_segment(windows, number, segment, self._shard.closed)
        # Those of which all have closed come last: what is left of them in the store is removed with the others.
        if found:
            return sorted(found.values(), key=lambda windows: not windows)
        lateness_us = self._spec.allowed_lateness_us
        unknown = KeptColumns(_Unknown(), lateness_us, self._shard.closed) if lateness_us else ColumnWindows(_Unknown())
        return [unknown]

    def _has_rows(self, watermark: int) -> bool:
        """Whether rows have a window that is to fire. Where windows stay afterwards, those of late records are there at
        all times, and change nothing."""
        if watermark < self._open_until:
            return True
        for store_key, _ in self._shard.store.scan(WINDOW):
            slot = slot_of(store_key) if self._spec.allowed_lateness_us else None
            if not isinstance(slot, list):
                return True
            if not is_complete(slot[1], watermark):
                self._open_until = slot[1]  # not looked at again before
                return True
        return False


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
    if isinstance(plan.window, Sessions):
        return SessionColumns(plan)
    if plan.lateness_us:
        return KeptColumns(plan, plan.lateness_us, closed, plan.inferred)
    return ColumnWindows(plan, plan.inferred)


def warm_up(plan: ColumnPlan, stream: str, frame: pl.DataFrame) -> None:
    """Group some records by a plan: code is loaded, and memory is there."""
    order = np.arange(frame.height)
    whole = ColumnBatch(stream, order, order, plan.keys_of(frame, order), frame.select(plan.needs))
    parts = [decode_columns(encode_columns(part)) for _, part in whole.split((order % 4).astype(np.int32))]
    with suppress(Unfit):  # made-up records may have what a calculation cannot use, such as a divisor of 0
        groups = [plan.group(part) for part in parts]
        if plan.fires_once:
            frame_from(frame_bytes(plan.merge(groups), "lz4"))
