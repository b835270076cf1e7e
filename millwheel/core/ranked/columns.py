"""How rows in order go by columns: the first rows of each key are chosen as an aggregate of whole
records is, and look-backs are aggregates of some records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millwheel.core.aggregates.candidates import RowCandidates
from millwheel.core.aggregates.columns import OverRanges
from millwheel.core.aggregates.functions import over_ranges
from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.from_spec import typed_plan
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.inferred import PlansByType
from millwheel.core.columns.stateless.flow import expected_types_of, types_of
from millwheel.core.lazy_polars import kind_of
from millwheel.core.order.labels import NO_USE, LabelUse
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import (
    AggregateSpec,
    AggregationSpec,
    OverSpec,
    TopSpec,
    WindowSpec,
)
from millwheel.core.ranked.kept_records import FLAT_KINDS
from millwheel.core.ranked.lookback_columns import MOST_SINGLY, LookbackForm
from millwheel.core.ranked.segments import FirstColumns
from millwheel.core.windows.contract import Windowing
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.core.windows.windows import Forever


def first_rows_or_why(
    spec: ComputationSpec, pipeline: PipelineSpec, compile_expression: Callable[[str], Any]
) -> ColumnPlan | str:
    """The plan that chooses, of a bundle, the rows of each key that may be among the first; or why
    there is none, as a phrase. What is kept is in rows."""
    work = spec.work_as(TopSpec)
    if work.upserts:
        return "a table takes each change"
    if spec.identified or spec.ordered or takes_retractions(spec, pipeline):
        return "it looks at each record"
    if len(spec.inputs) != 1:
        return "it has several inputs"
    stream = pipeline.stream(spec.inputs[0].stream)
    if spec.inputs[0].key.kind in (KeyKind.FUNCTION, KeyKind.RECORD) or stream.schema:
        return "its key is no field" if not stream.schema else "its records are objects"
    chosen = _as_aggregate(work)
    fields = types_of(stream.name, pipeline, compile_expression)
    if chosen is None or not fields:
        return f"the fields of {stream.name} are not declared"
    aggregation = AggregationSpec(window=WindowSpec("forever"), aggregates=(chosen,))
    same = replace(spec, work=aggregation)
    plan = typed_plan(same, Forever(), fields, compile_expression, stream.timestamp)
    return plan if isinstance(plan, str) else replace(plan, fires_once=False)


def first_columns(
    spec: ComputationSpec,
    pipeline: PipelineSpec,
    plan: ColumnPlan | None,
    labels: LabelUse,
    compile_expression: Callable[[str], Any],
) -> FirstColumns | None:
    """How columns keep the rows that a plan chooses; None where they are kept in rows."""
    if plan is None or labels != NO_USE:
        return None
    (order,) = plan.aggregates
    assert isinstance(order, RowCandidates)
    fields = expected_types_of(spec.inputs[0].stream, pipeline, compile_expression)
    flat = bool(fields) and {*fields.values()} <= FLAT_KINDS and not any(map(is_pattern, fields))
    kinds = {kind_of(kind) for kind in plan.key_types.values()}
    if not flat or not kinds <= {"int", "str"} or RETRACTION_FIELD in fields:
        return None
    most = pipeline.limits.state
    return FirstColumns(
        plan=plan, fields=fields, most=most, spec=spec.work_as(TopSpec), order=order
    )


def lookbacks_or_why(
    spec: ComputationSpec,
    pipeline: PipelineSpec,
    labels: LabelUse,
    compile_expression: Callable[[str], Any],
) -> PlansByType | str:
    """The plans of a computation with ``over``, by the types of its records; or why it takes these
    one by one, as a phrase."""
    work = spec.work_as(OverSpec)
    if work.size is None or work.ttl_us is not None:
        return "each key is forgotten by itself" if work.ttl_us else "each record changes a sum"
    if len(spec.inputs) != 1:
        return "it has several inputs"
    stream = pipeline.stream(spec.inputs[0].stream)
    if stream.source is not None:
        return "records of one time are in the order of their source"
    if stream.schema or spec.inputs[0].key.kind in (KeyKind.FUNCTION, KeyKind.RECORD):
        return "its records are objects" if stream.schema else "its key is no field"
    if labels != NO_USE:
        return "timers behind it go by the place of each record"
    ranges = {each.name: over_ranges(each) for each in work.aggregates}
    if without := [name for name, each in ranges.items() if each is None]:
        return f"no column holds the aggregate {without[0]}"
    singly = [name for name, each in ranges.items() if each is OverRanges.UNKNOWN]
    if singly and not (work.by_rows and work.size <= MOST_SINGLY):
        return f"a look-back for {singly[0]} is put together of parts"
    aggregation = AggregationSpec(
        window=WindowSpec("forever"), aggregates=work.aggregates, condition=work.condition
    )
    same = replace(spec, work=aggregation)
    return PlansByType(same, Windowing(Forever()), compile_expression, lambda plan: "")


def lookback_form(
    spec: ComputationSpec, pipeline: PipelineSpec, plans: PlansByType | None
) -> LookbackForm | None:
    """How columns keep records with look-backs; None where they are kept in rows."""
    work = spec.work_as(OverSpec)
    if plans is None or work.size is None:
        return None
    return LookbackForm(plans, work.by_rows, work.size, pipeline.limits.state)


def _as_aggregate(work: TopSpec) -> AggregateSpec | None:
    if work.by:
        options = {"by": [*work.by], "k": work.k}
        return None if work.latest else AggregateSpec("rows", "top_rows", options=options)
    return AggregateSpec("rows", "last_row" if work.latest else "first_row")
