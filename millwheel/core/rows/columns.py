"""The column forms of computations over rows in order: the first rows of each key are chosen as by
an aggregate of whole records, look-backs are aggregates of some records, and an enrichment takes
whole bundles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millwheel.core.aggregates.candidates import RowCandidates
from millwheel.core.aggregates.columns import OverRanges
from millwheel.core.aggregates.functions import over_ranges
from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.from_spec import dtype_of_key, typed_plan
from millwheel.core.columns.key_columns import kinds_of_key
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.columns.stateless.flow import expected_types_of, types_of
from millwheel.core.columns.stateless.plans import stateless_plan
from millwheel.core.expressions.terms import NoColumns
from millwheel.core.lazy_polars import kind_of
from millwheel.core.order.labels import NO_USE, LabelUse
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    Delivery,
    InputSpec,
    PipelineSpec,
    Productions,
)
from millwheel.core.pipeline.work import (
    AggregateSpec,
    AggregationSpec,
    EnrichSpec,
    OverSpec,
    StepKind,
    StepSpec,
    StepsSpec,
    TopSpec,
    WindowSpec,
)
from millwheel.core.rows.kept_records import FLAT_KINDS, ROW
from millwheel.core.rows.lookback_columns import MOST_SINGLY, LookbackForm
from millwheel.core.rows.segments import FirstColumns
from millwheel.core.rows.versions import VERSION, EnrichPlan
from millwheel.core.rows.waiting import KeyTypes, WaitingColumns
from millwheel.core.windows.contract import Windowing
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.core.windows.windows import Forever


def first_rows_or_why(
    spec: ComputationSpec, pipeline: PipelineSpec, compile_expression: Callable[[str], Any]
) -> ColumnPlan | str:
    """The plan that chooses, of a bundle, the rows of each key that may be among the first; or why
    there is none, as a phrase. The kept state is in rows."""
    work = spec.work_as(TopSpec)
    if work.upserts:
        return "a table takes each change"
    if spec.identified or spec.ordered or takes_retractions(spec, pipeline):
        return "it looks at each record"
    if len(spec.inputs) != 1:
        return "it has several inputs"
    stream = pipeline.stream(spec.inputs[0].stream)
    if spec.inputs[0].key.kind in (KeyKind.FUNCTION, KeyKind.RECORD) or stream.schema:
        return "its key is not a field" if not stream.schema else "its records are objects"
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
        return "its records are objects" if stream.schema else "its key is not a field"
    if labels != NO_USE:
        return "timers behind it depend on the position of each record"
    ranges = {each.name: over_ranges(each) for each in work.aggregates}
    if without := [name for name, each in ranges.items() if each is None]:
        return f"no column holds the aggregate {without[0]}"
    singly = [name for name, each in ranges.items() if each is OverRanges.UNKNOWN]
    if singly and not (work.by_rows and work.size <= MOST_SINGLY):
        return f"a look-back for {singly[0]} is merged from parts"
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


def _why_not_numbered(spec: ComputationSpec) -> str:
    if spec.productions is Productions.WEAK:
        return "weak productions have ids, which columns of results do not carry"
    return "" if spec.delivery is Delivery.EXACTLY_ONCE else "its records may come twice"


def enrich_plan_or_why(
    spec: ComputationSpec,
    pipeline: PipelineSpec,
    labels: LabelUse,
    compile_expression: Callable[[str], Any],
) -> EnrichPlan | str:
    """How an enrichment as of event time takes columns, or why it takes records one by one, as a
    phrase."""
    work = spec.work_as(EnrichSpec)
    if why := _why_not(spec, work, pipeline, labels):
        return why
    columns, keys = {}, {}
    for each in spec.inputs:
        found = _columns_of(each, spec, pipeline, compile_expression)
        if isinstance(found, str):
            return found
        columns[each.stream], keys[each.stream] = found, each.key.names
    one, other = (each.plan.key_dtype for each in columns.values())
    parts = [each.plan.key_types.values() for each in columns.values()]
    if [*parts[0]] != [*parts[1]]:
        return "its keys are of two types"
    if one != other:
        return "the fields of its keys have two names"
    return EnrichPlan(columns, keys, work.stream, work.name, work.missing)


def _why_not(
    spec: ComputationSpec, work: EnrichSpec, pipeline: PipelineSpec, labels: LabelUse
) -> str:
    if not work.waits:
        return "a record gets what has arrived by then"
    if work.timeless or work.copied:
        return "its table has no times" if work.timeless else "its table is held in copies"
    if labels != NO_USE:
        return "timers behind it depend on the position of each record"
    if takes_retractions(spec, pipeline):
        return "records can be taken back"
    if work.name == RETRACTION_FIELD or is_pattern(work.name):
        return "it makes a field that columns cannot have"
    return _why_not_numbered(spec)


def _columns_of(
    node_input: InputSpec,
    spec: ComputationSpec,
    pipeline: PipelineSpec,
    compile_expression: Callable[[str], Any],
) -> WaitingColumns | str:
    stream = pipeline.stream(node_input.stream)
    if stream.schema:
        return "a schema makes an object of each record"
    if not node_input.key.plain or node_input.key.instances > 1 or node_input.key.nulls:
        return "its key is not a field"
    fields = expected_types_of(stream.name, pipeline, compile_expression)
    if not fields:
        return f"the fields of {stream.name} are not declared"
    odd = [name for name, kind in fields.items() if kind not in FLAT_KINDS or is_pattern(name)]
    if odd or RETRACTION_FIELD in fields:
        return f"columns cannot keep the field {[*odd, RETRACTION_FIELD][0]} of {stream.name}"
    try:
        kinds = kinds_of_key(node_input.key, fields, compile_expression)
    except NoColumns as ex:
        return str(ex)
    keys = KeyTypes(tuple(kinds), dtype_of_key(kinds))
    work, most = spec.work_as(EnrichSpec), pipeline.limits.state
    if stream.name != work.stream:
        return WaitingColumns(keys, fields, most, ROW)
    deletes = None
    if work.delete:
        steps = StepsSpec((StepSpec(StepKind.FILTER, expression=work.delete),))
        plan = stateless_plan(replace(spec, work=steps), fields, compile_expression)
        if isinstance(plan, str):
            return plan
        (deletes,) = plan.stages
    return WaitingColumns(keys, fields, most, VERSION, deletes)
