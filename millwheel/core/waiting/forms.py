"""Which enrichments take whole bundles, and which take each record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.from_spec import dtype_of_key
from millwheel.core.columns.key_columns import kinds_of_key
from millwheel.core.columns.stateless.flow import expected_types_of
from millwheel.core.columns.stateless.plans import stateless_plan
from millwheel.core.expressions.terms import NoColumns
from millwheel.core.order.labels import NO_USE, LabelUse
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    Delivery,
    InputSpec,
    PipelineSpec,
    Productions,
)
from millwheel.core.pipeline.work import EnrichSpec, StepKind, StepSpec, StepsSpec
from millwheel.core.ranked.kept_records import FLAT_KINDS, ROW
from millwheel.core.waiting.records import KeyTypes, WaitingColumns
from millwheel.core.waiting.versions import VERSION, EnrichPlan
from millwheel.core.windows.panes import RETRACTION_FIELD


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
        return "timers behind it go by the place of each record"
    if takes_retractions(spec, pipeline):
        return "records can be taken back"
    if work.name == RETRACTION_FIELD or is_pattern(work.name):
        return "it makes a field that columns cannot have"
    return _why_not_numbered(spec)


def _columns_of(
    given: InputSpec,
    spec: ComputationSpec,
    pipeline: PipelineSpec,
    compile_expression: Callable[[str], Any],
) -> WaitingColumns | str:
    stream = pipeline.stream(given.stream)
    if stream.schema:
        return "a schema makes an object of each record"
    if not given.key.plain or given.key.instances > 1 or given.key.nulls:
        return "its key is no field"
    fields = expected_types_of(stream.name, pipeline, compile_expression)
    if not fields:
        return f"the fields of {stream.name} are not declared"
    odd = [name for name, kind in fields.items() if kind not in FLAT_KINDS or is_pattern(name)]
    if odd or RETRACTION_FIELD in fields:
        return f"columns cannot keep the field {[*odd, RETRACTION_FIELD][0]} of {stream.name}"
    try:
        kinds = kinds_of_key(given.key, fields, compile_expression)
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
