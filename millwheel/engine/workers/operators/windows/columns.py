"""Runs a declarative aggregation on columns: whole bundles are grouped at once, and nothing is done
per record.

State is in a :class:`SegmentTable`. A value that columns cannot hold exactly (a float below 2**-37)
makes the shard go on in rows: open windows are handed to the row form, whose results are the same,
some keys in each bundle (:mod:`millwheel.core.columns.state.columns_to_rows`). When the windows in
rows have closed the shard takes columns again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from millwheel.adapters.ports import StoreView
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.columns.batch import (
    AnyBatch,
    ColumnBatch,
    decode_columns,
    encode_columns,
    frame_bytes,
    frame_from,
    joined,
    key_column,
)
from millwheel.core.columns.declared_fields import example_frame
from millwheel.core.columns.few_groups import Groups, frame_of
from millwheel.core.columns.groups_frame import COUNT, END, KEY
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.columns_to_rows import Leaving, Left, keys_like
from millwheel.core.columns.state.plans_by_type import PlansByType, types_in
from millwheel.core.columns.state.steps import StepColumns
from millwheel.core.columns.state.windows import ColumnWindows
from millwheel.core.expressions.inner_fields import path_of
from millwheel.core.expressions.language import BUILT_IN, Language
from millwheel.core.lazy_polars import kind_of, pl
from millwheel.core.model.keys import Key
from millwheel.core.model.names import groups_of
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.windows.calls import Group
from millwheel.core.windows.lateness import final_until, still_open
from millwheel.core.windows.windows import Window
from millwheel.engine.queries.model import Finding, Query
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.bundle.bundle import RECORD, Bundle, Hold
from millwheel.engine.workers.bundle.operator import Operator, Validated
from millwheel.engine.workers.bundle.record_groups import RecordGroups, Reports
from millwheel.engine.workers.operators.callbacks import Decode
from millwheel.engine.workers.operators.windows.outputs import ColumnOutputs
from millwheel.engine.workers.operators.windows.row_keys import MOST_KEYS, odd_groups, odd_keys
from millwheel.engine.workers.operators.windows.rows import WindowedOperator
from millwheel.engine.workers.operators.windows.segment_table import SegmentTable
from millwheel.engine.workers.operators.windows.table import WindowTable
from millwheel.engine.workers.state.column_segments import ColumnShard

MOST_BYTES = 32 << 20
"""State that grows with the records goes on in rows beyond this: columns keep all of it in
memory."""


@dataclass(frozen=True, slots=True)
class _Combined:
    """The groups of open windows that a sender has made of records, by its plan."""

    plan: ColumnPlan
    groups: pl.DataFrame


class ColumnOperator(Operator, Validated):
    """The operator of a computation with a column plan. ``rows`` processes everything that columns
    cannot."""

    def __init__(
        self,
        spec: ComputationSpec,
        plan: ColumnPlan | PlansByType,
        shard: ColumnShard,
        rows: WindowedOperator,
        decode: Decode,
        few: int = 0,
        language: Language = BUILT_IN,
    ) -> None:
        """Bundles of fewer than ``few`` records are grouped in rows. ``language`` is that of the
        expressions."""
        self._spec = spec
        self._held = SegmentTable(spec, plan, shard)
        self._rows = rows
        self._tables: tuple[WindowTable, ...] = (self._held, rows)
        self._aggregation = compile_aggregation(
            spec.aggregates, language.compile, None, spec.condition, spec.stage
        )
        self._records = RecordGroups(
            self._aggregation, rows.outputs.refuse, decode, spec.late == "drop", few
        )
        if isinstance(plan, ColumnPlan):
            rows.outputs.finish_row = plan.typed
        self._boundary = ColumnBoundary(spec.name)
        self._outputs = ColumnOutputs(
            spec, self._aggregation, language, self._boundary, rows.outputs
        )
        # Rows may have windows, too: of some keys, or after a merge of a shard in columns with one
        # in rows.
        self._apart = self._held.keys_apart()
        self._in_rows = bool(self._held.others) or (
            not self._apart and self._held.has_rows(shard.closed)
        )
        self._apart_before = bool(self._apart)

    @property
    def emits_late(self) -> bool:
        return self._rows.emits_late

    def wakes_at(self, now_us: int) -> int:
        return now_us if self._held.others else self._rows.wakes_at(now_us)

    def due_at(self) -> int:
        return min(table.due_at() for table in self._tables)

    def run(self, bundle: Bundle) -> None:
        in_rows = self._rows.received(bundle)
        combined = self._take_combined(bundle)
        if (self._in_rows or self._apart) and self._may_go_back(bundle, combined):
            self._in_rows = False
            self._apart.clear()
        if self._apart_before:
            # The owner before may have had late windows of such a key in rows, and its open ones in
            # columns.
            self._apart_before = False
            self._take_out(self._apart, bundle)
        if not self._in_rows:
            in_rows = self._run_apart(bundle, combined, in_rows)
        if self._in_rows:
            self._run_rows(bundle, combined, in_rows)
        self._held.write(bundle.overlay)

    def hold(self, now_us: int) -> Hold:
        return min((table.hold(now_us) for table in self._tables), key=lambda hold: hold.at)

    def validate(self, state: StoreView) -> None:
        for table in self._tables:
            table.validate(state)

    def open_windows(self, key: Key) -> list[Window]:
        """The windows of a key that hold state, ordered by end."""
        windows = [window for table in self._tables for window in table.open_windows(key)]
        return sorted(windows, key=lambda window: (window.end, window.start))

    def answer(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        """Its open windows."""
        results = self._held.results(query.key, self._aggregation, watermark_us)
        return self._rows.answer_with(query, results, state, watermark_us)

    def answer_committed(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        results = self._held.stored_results(state, query.key, self._aggregation, watermark_us)
        return self._rows.answer_with(query, results, state, watermark_us)

    # --- a bundle ---------------------------------------------------------------------------------

    def _may_go_back(self, bundle: Bundle, combined: Sequence[_Combined]) -> bool:
        """Whether the shard takes columns again."""
        possible = not self._held.others and self._may_hold(bundle, combined)
        return possible and not self._held.has_rows(bundle.watermark)

    def _of_rows(self, groups: list[tuple[Key, Group]], bundle: Bundle) -> _Combined:
        """Groups that came in rows. Raises Inexact."""
        with self._boundary.inside(bundle.count):
            return _Combined(
                self._held.plan, self._held.plan.merge([self._held.plan.from_row_groups(groups)])
            )

    def _take_combined(self, bundle: Bundle) -> list[_Combined]:
        """Take the groups of senders out of the bundle, which keeps its records; without those of
        closed windows."""
        name = groups_of(self._spec.name)
        batches = [arrival.batch for arrival in bundle.arrivals if arrival.batch.stream == name]
        if not batches:
            return []
        bundle.arrivals = [arrival for arrival in bundle.arrivals if arrival.batch.stream != name]
        combined = []
        for batch in batches:
            assert isinstance(batch, ColumnBatch)
            plan = (
                self._held.plan
                if self._held.by_type is None
                else self._held.by_type.plan(dict(types_in(batch.frame)))
            )
            assert plan is not None  # by which the sender has grouped
            groups = batch.frame.with_columns(batch.keys.alias(KEY)).select(list(plan.schema))
            bundle.try_(RECORD, int(groups[COUNT].sum()) - groups.height)
            late_until = final_until(bundle.watermark, plan.lateness_us)
            if batch.earliest < late_until:
                closed = ~still_open(pl.col(END), late_until)
                bundle.count("late", int(groups.filter(closed)[COUNT].sum()))
                groups = groups.filter(~closed)
            combined.append(_Combined(plan, groups))
        return combined

    def _run_apart(
        self, bundle: Bundle, combined: list[_Combined], in_rows: list[tuple[Key, Group]]
    ) -> list[tuple[Key, Group]]:
        """Take a bundle in columns, but for the keys that are in rows. Returns the groups that came
        in rows and are not taken: then the whole bundle must be."""
        arrivals, former, keys_apart = bundle.arrivals, list(combined), self._apart
        if self._apart:
            bundle.arrivals, apart = self._apart.divide(arrivals)
            divided = [(each.plan, *self._apart.divide_groups(each.groups)) for each in combined]
            combined[:] = [_Combined(plan, others) for plan, others, _ in divided]
            apart_groups = [(plan, groups) for plan, _, groups in divided if groups.height]
            rows = [each for each in in_rows if each[0] in keys_apart]
        else:
            apart, apart_groups, rows = [], [], []
        others = [each for each in in_rows if each[0] not in keys_apart] if rows else in_rows
        if not self._take_rows_of_others(bundle, combined, others) or not self._run_columns(
            bundle, combined
        ):
            bundle.arrivals, combined[:] = arrivals, former
            if self._in_rows or not self._set_apart(bundle, combined, in_rows):
                self._in_rows = True
                return in_rows
            return self._run_apart(bundle, combined, in_rows)
        if not self._apart:
            return []
        for plan, groups in apart_groups:
            self._rows.take_groups(plan.row_groups(groups), bundle)
        self._rows.take_groups(rows, bundle)
        bundle.arrivals = apart
        self._rows.run(bundle)
        return []

    def _take_rows_of_others(
        self, bundle: Bundle, combined: list[_Combined], in_rows: list[tuple[Key, Group]]
    ) -> bool:
        """Groups that came in rows become groups in columns; False where they cannot."""
        if not in_rows:
            return True
        # accumulators do not have the types of undeclared fields
        if self._held.by_type is not None:
            self._in_rows = True
            return False
        try:
            combined.append(self._of_rows(in_rows, bundle))
        except Inexact:
            return False
        return True

    def _set_apart(
        self, bundle: Bundle, combined: list[_Combined], in_rows: list[tuple[Key, Group]]
    ) -> bool:
        """Move the keys of records that columns cannot hold to rows. False where such keys cannot
        be found, or are too many."""
        if self._held.by_type is not None:
            return False
        odd = odd_groups(in_rows, self._held.plan)
        for arrival in bundle.arrivals:
            odd |= odd_keys(arrival.batch, self._held.plan)
        odd = {key for key in odd if key not in self._apart}
        if not odd or len(self._apart) + len(odd) > MOST_KEYS:
            return False
        self._apart.add(odd)
        self._take_out(odd, bundle)
        return True

    def _take_out(self, keys: Iterable[Key], bundle: Bundle) -> None:
        """Move the windows of keys from columns to rows."""
        plan, windows = self._held.plan, self._held.windows
        if windows and (leaving := list(keys)):
            segments = Leaving(windows).taken_out([keys_like(leaving, plan.key_dtype)])
            self._hand_over(plan, windows, segments, bundle)

    def _run_columns(self, bundle: Bundle, combined: list[_Combined]) -> bool:
        """Take all of a bundle, or, where columns cannot hold it, nothing; then it is False."""
        reports: Reports = []
        mark = self._held.windows.mark()
        try:
            with self._boundary.inside(bundle.count):
                self._adopt_plan(bundle, combined)
                batches = _bundled(bundle, lambda: self._held.plan.needs)
                parts = [
                    self._records.of(batch, self._held.plan, self._held.windows, bundle, reports)
                    for batch in batches
                ]
                # Windows close before records are added: a record that comes behind the end of a
                # session is of another one.
                closed = self._held.windows.close(bundle.watermark)
                groups: list[Groups] = [
                    *(each.groups for each in combined),
                    *(one for some in parts for one in some),
                ]
                late = [
                    behind for each in groups if (behind := self._add(each, bundle)) is not None
                ]
        except Inexact:
            self._held.windows.back_to(mark)
            return False
        # Only once all of them fit: records that are late or dead letters would be counted again
        # when the bundle goes by rows. See
        # test_a_bundle_that_no_column_can_hold_has_its_dead_letters_once.
        combined.clear()
        bundle.arrivals = []
        for report in reports:
            report()
        if closed is not None:
            self._outputs.emit(self._held.plan, closed, bundle)
        if self._held.windows.lateness_us or self._spec.late != "drop":
            self._rows.run_with(self._late_groups(late, bundle), bundle)
            bundle.arrivals = []
        self._in_rows = (
            bool(self._held.windows)
            and self._held.plan.grows
            and self._held.windows.size() > MOST_BYTES
        )
        return True

    def _add(self, groups: Groups, bundle: Bundle) -> Groups | None:
        """Hold the groups of windows that have not fired. Those of windows that have are returned
        (None: none)."""
        on_time, behind = self._held.windows.on_time(groups, bundle.watermark)
        self._held.windows.add(on_time)
        return behind

    def _late_groups(self, late: Sequence[Groups], bundle: Bundle) -> list[tuple[Key, Group]]:
        """Groups of windows that have fired, for the row form. It gets these windows, as they
        fired."""
        if not late:
            return []
        together = self._held.plan.merge([frame_of(groups) for groups in late])
        fired = self._held.windows.fired(together)
        if fired is not None:
            self._rows.take_groups(self._held.plan.row_groups(fired), bundle, bundle.watermark)
        return list(self._held.plan.row_groups(together))

    def _may_hold(self, bundle: Bundle, combined: Sequence[_Combined]) -> bool:
        """Whether columns may hold the records of a bundle. Rows have types only where they are
        declared."""
        batches = [arrival.batch for arrival in bundle.arrivals]
        something = bool(batches or combined)
        return self._held.by_type is None or (
            something and all(isinstance(batch, ColumnBatch) for batch in batches)
        )

    def _adopt_plan(self, bundle: Bundle, combined: Sequence[_Combined]) -> None:
        """Go on with the plan for the records of a bundle, where no types are declared. Raises
        Inexact when it is not that of the open windows."""
        if self._held.by_type is None:
            return
        batches = [arrival.batch for arrival in bundle.arrivals if len(arrival.batch)]
        plans = [
            *map(self._held.by_type.of_any, batches),
            *(each.plan for each in combined if each.groups.height),
        ]
        if not plans:
            return
        plan = plans[0]
        if plan is None or not plan.fires_once or any(each is not plan for each in plans):
            raise Inexact
        if plan is self._held.current_plan:
            return
        if self._held.windows:
            raise Inexact
        self._held.current_plan = plan
        self._held.windows.go_on_with(plan, plan.inferred)

    # --- rows -------------------------------------------------------------------------------------

    def _run_rows(
        self, bundle: Bundle, combined: Sequence[_Combined], in_rows: list[tuple[Key, Group]]
    ) -> None:
        """Take a bundle record by record. Its keys leave the columns before, and so does a part of
        the other keys: all at once would make a step as large as the shard."""
        for windows in filter(None, self._held.all()):
            plan, leaving = self._held.plan_of(windows), Leaving(windows)
            keys = self._keys_in(bundle, combined, in_rows, plan)
            self._hand_over(plan, windows, [*leaving.taken_out(keys), *leaving.next_part()], bundle)
        for each in combined:
            self._rows.take_groups(each.plan.row_groups(each.groups), bundle)
        if in_rows:
            self._rows.take_groups(in_rows, bundle)
        for windows in self._held.all():
            self._close(windows, bundle)
        self._rows.run(bundle)

    def _keys_in(
        self,
        bundle: Bundle,
        combined: Sequence[_Combined],
        in_rows: list[tuple[Key, Group]],
        plan: ColumnPlan,
    ) -> list[pl.Series]:
        """The keys of all records and groups of a bundle."""
        columns = [each.groups[KEY] for each in combined]
        rows = [key for key, _ in in_rows]
        for batch in (arrival.batch for arrival in bundle.arrivals):
            if isinstance(batch, ColumnBatch):
                columns.append(batch.keys)
            else:
                rows += batch.keys
        return [keys.unique() for keys in (*columns, keys_like(rows, plan.key_dtype)) if len(keys)]

    def _hand_over(
        self, plan: ColumnPlan, windows: ColumnWindows, segments: Sequence[Left], bundle: Bundle
    ) -> None:
        """Keep the windows of these segments in rows."""
        parts = [windows.parted(each.groups, each.fired) for each in segments]
        if fired := [behind for _, behind in parts if behind is not None]:
            self._rows.take_groups(plan.row_groups(plan.merge(fired)), bundle, bundle.watermark)
        if ahead := [groups for groups, _ in parts if groups.height]:
            closed = windows.closed if isinstance(windows, StepColumns) else None
            self._rows.take_groups(plan.row_groups(plan.merge(ahead)), bundle, closed)

    def _close(self, windows: ColumnWindows, bundle: Bundle) -> None:
        """Close windows of keys that have not left yet."""
        if not windows:
            windows.close(bundle.watermark)
            return
        plan = self._held.plan_of(windows)
        mark = windows.mark()
        try:
            with self._boundary.inside(bundle.count):
                closed = windows.close(bundle.watermark)
        except Inexact:  # rows find the window at fault
            windows.back_to(mark)
            due = [
                segment.groups[KEY].unique()
                for segment in windows.segments()
                if segment.first <= bundle.watermark
            ]
            self._hand_over(plan, windows, Leaving(windows).taken_out(due), bundle)
            return
        if closed is not None:
            self._outputs.emit(plan, closed, bundle)


def _bundled(bundle: Bundle, needs: Callable[[], Sequence[str]]) -> list[AnyBatch]:
    """All arrived columns as one batch: with the fields that are read, where they have different
    ones. Raises Inexact where those differ, too."""
    batches = [arrival.batch for arrival in bundle.arrivals if len(arrival.batch)]
    columns = [batch for batch in batches if isinstance(batch, ColumnBatch)]
    rows: list[AnyBatch] = [batch for batch in batches if not isinstance(batch, ColumnBatch)]
    if not _are_alike(columns):
        read = list(dict.fromkeys(path_of(name)[0] for name in needs()))
        if any(not {*read} <= {*batch.frame.columns} for batch in columns):
            raise Inexact
        columns = [replace(batch, frame=batch.frame.select(read)) for batch in columns]
        if not _are_alike(columns):
            raise Inexact
    return [*rows, joined(columns)] if columns else rows


def _are_alike(batches: Sequence[ColumnBatch]) -> bool:
    return all(batch.frame.schema == batches[0].frame.schema for batch in batches[1:])


def warm_up(plan: ColumnPlan, stream: str, frame: pl.DataFrame) -> None:
    """Group some records by a plan: code is loaded, and memory is there."""
    order = np.arange(frame.height)
    types = {name: kind_of(each) for name, each in plan.key_types.items()}
    keys = key_column(example_frame(types, frame.height).get_columns())
    whole = ColumnBatch(stream, order, order, keys, frame.select(plan.needs))
    parts = [
        decode_columns(encode_columns(part))
        for _, part in whole.split((order % 4).astype(np.int32))
    ]
    # made-up records may have what a calculation cannot use, such as a divisor of 0
    with suppress(Inexact):
        groups = [plan.group(part) for part in parts]
        if plan.fires_once:
            frame_from(frame_bytes(plan.merge(groups), "lz4"))
