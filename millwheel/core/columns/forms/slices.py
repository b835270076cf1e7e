"""How the slices of a computation are grouped on columns, if they can be: one group for each key
and slice of a level.

The state of slices is that of the row form. Columns give one accumulator for all records of a
bundle in a slice, and the store of slices merges it into the accumulator that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.columns import Argument, Inexact
from millwheel.core.aggregates.families.choice import Extremal
from millwheel.core.columns.arrays import Assigned, Filled, none_filled
from millwheel.core.columns.batch import ID_TYPES, ColumnBatch, key_list
from millwheel.core.columns.from_spec import typed_plan
from millwheel.core.columns.groups_frame import KEY, START
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.stateless.flow import types_of
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.core.slices.levels import SliceLevel, slice_levels
from millwheel.core.windows.lateness import still_open
from millwheel.core.windows.windows import Tumbling
from millwheel.errors import RecordError, invariant

_TIME = ":time"  # no field has a name with a colon
_NEWEST = "newest"

Compile = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class SliceGroup:
    """The records of a bundle in one slice of a key. ``newest_us`` is the highest time of them;
    ``acc`` is an accumulator of the row form."""

    key: Key
    start_us: int
    newest_us: int
    acc: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePlan(ColumnPlan):
    """A plan whose windows are the slices of one level."""

    level: SliceLevel

    def group(self, batch: ColumnBatch, filled: Filled = none_filled) -> pl.DataFrame:
        """The groups of a bundle. Raises Inexact when the columns cannot hold its numbers."""
        timed = batch.frame.with_columns(pl.Series(_TIME, batch.timestamps))
        return ColumnPlan.group(self, replace(batch, frame=timed), filled)

    def slices(self, batch: ColumnBatch) -> Iterator[SliceGroup]:
        """The groups of a bundle, in the order in which they come. Raises Inexact."""
        groups = self.group(batch)
        *aggregates, newest = self.aggregates
        for key, row in zip(key_list(groups[KEY]), groups.iter_rows(named=True), strict=True):
            acc = [aggregate.to_acc(row) for aggregate in aggregates]
            [newest_us] = newest.to_acc(row)
            yield SliceGroup(key, row[START], newest_us, acc)

    def of_level(self, level: SliceLevel) -> SlicePlan:
        """The plan of another level."""
        return replace(self, level=level)

    def counted(self, batch: ColumnBatch) -> ColumnBatch:
        """The records for which the condition of the computation holds. Raises Inexact."""
        self.check(batch)
        if self.condition is None:
            return batch
        return batch.where(batch.frame.select(self.condition).to_series().to_numpy())

    def ended(self, batch: ColumnBatch, by_us: int) -> npt.NDArray[np.bool_] | None:
        """Which records lie in a slice that ends at or before ``by_us``; None when no record
        does."""
        if batch.earliest >= by_us:
            return None
        open_still = still_open(self._assign(batch.keys, batch.timestamps, batch.frame).ends, by_us)
        return None if open_still.all() else ~open_still

    def _assign(
        self, keys: pl.Series, timestamps: npt.NDArray[np.int64], frame: pl.DataFrame
    ) -> Assigned:
        """Assign each distinct slice once, not each record: most ``timestamps`` are near to each
        other."""
        starts, ends = np.empty_like(timestamps), np.empty_like(timestamps)
        try:
            _fill(self.level, timestamps, starts, ends)
        except RecordError:  # a year outside of the time zone's; one by one it shows whose
            raise Inexact from None
        return Assigned(np.arange(len(timestamps)), starts, ends)


Int64s = npt.NDArray[np.int64]


def _fill(level: SliceLevel, times: Int64s, starts: Int64s, ends: Int64s) -> None:
    if level.is_plain:
        np.subtract(times, np.mod(times, level.size_us), out=starts)
        np.add(starts, level.size_us, out=ends)
        starts[starts > times] = MIN_TIME  # it would begin before the first time there is
        ends[ends < times] = MAX_TIME
        return
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    index = 0
    while index < len(ordered):
        start, end = level.bounds(int(ordered[index]))
        after = int(np.searchsorted(ordered, end))
        # A slice without its own first record: the loop would not end.
        invariant(after > index, f"{ordered[index]} lies outside of its slice, {start} to {end}")
        starts[order[index:after]], ends[order[index:after]] = start, end
        index = after


def slice_plan(
    spec: ComputationSpec, pipeline: PipelineSpec, compile_expression: Compile
) -> SlicePlan | None:
    """The plan of a computation with slices, for the finest level; None when it has no column
    form."""
    plan = slice_plan_or_why(spec, pipeline, compile_expression)
    return plan if isinstance(plan, SlicePlan) else None


def slice_plan_or_why(
    spec: ComputationSpec, pipeline: PipelineSpec, compile_expression: Compile
) -> SlicePlan | str:
    """:func:`slice_plan`, or why there is none, as a phrase."""
    slices = spec.work_as(SlicesSpec)
    if why := _why_rows(spec, slices, pipeline):
        return why
    stream = pipeline.stream(spec.inputs[0].stream)
    fields = types_of(stream.name, pipeline, compile_expression)
    if not fields:
        return f"the stream {stream.name} declares no fields"
    level = slice_levels(slices.levels_us, slices.time_zone)[0]
    plan = typed_plan(spec, Tumbling(level.size_us), fields, compile_expression, stream.timestamp)
    if isinstance(plan, str):
        return plan
    if plan.whole:
        return "whole records are kept in rows"
    newest = Extremal(_NEWEST, Argument(pl.col(_TIME), "int", None), largest=True)
    return SlicePlan(
        window=plan.window,
        names=plan.names,
        aggregates=(*plan.aggregates, newest),
        condition=plan.condition,
        kinds=plan.kinds,
        key_names=plan.key_names,
        key_dtype=plan.key_dtype,
        floats=plan.floats,
        fires_once=False,
        key_fields=plan.key_fields,
        shown=plan.shown,
        level=level,
    )


def _why_rows(spec: ComputationSpec, slices: SlicesSpec, pipeline: PipelineSpec) -> str:
    """Why there is no column form with any fields; "" when there may be one."""
    if spec.stage is AggregationStage.FINAL:
        return "accumulators are merged one by one"
    if len(spec.inputs) != 1:
        return "it has several inputs"
    stream = pipeline.stream(spec.inputs[0].stream)
    if spec.inputs[0].key.kind in (KeyKind.FUNCTION, KeyKind.RECORD):
        return "its key is not a field"
    if takes_retractions(spec, pipeline):
        return "records can be taken back"
    if slices.ttl_us is not None:
        return "each record decides whether its key went idle (ttl)"
    if stream.fields and stream.id and stream.fields.get(stream.id) not in ID_TYPES:
        return f"the id {stream.id} is not declared as int or str"
    return ""
