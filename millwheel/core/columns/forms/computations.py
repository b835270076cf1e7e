"""The form in which a computation takes records, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from millwheel.core.columns.forms.joins import near_pairing, window_of_join
from millwheel.core.columns.forms.slices import slice_plan_or_why
from millwheel.core.columns.forms.windows import (
    WEAK_IN_ROWS,
    plan_or_why,
    plans_by_type,
    why_state_in_rows,
)
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.columns.stateless.flow import types_of, types_through
from millwheel.core.columns.stateless.plans import StatelessPlans, why_no_plan
from millwheel.core.columns.stateless.results import why_results_in_rows
from millwheel.core.machines.specs import windowing_from_spec
from millwheel.core.order.labels import NO_USE, Labels
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    Productions,
    StreamSpec,
)
from millwheel.core.pipeline.work import (
    AggregationSpec,
    BranchesSpec,
    CallbackSpec,
    CopiesSpec,
    DeduplicateSpec,
    DictionarySpec,
    EnrichSpec,
    IntervalJoinSpec,
    JoinSpec,
    LookupSpec,
    OverSpec,
    RegularJoinSpec,
    SlicesSpec,
    StepsSpec,
    TableSpec,
    TopSpec,
    WindowCallbackSpec,
    Work,
)
from millwheel.core.rows.columns import (
    enrich_plan_or_why,
    first_columns,
    first_rows_or_why,
    lookbacks_or_why,
)
from millwheel.core.rows.versions import EnrichPlan

Plan: TypeAlias = ColumnPlan | PlansByType
AnyPlan: TypeAlias = Plan | StatelessPlans | EnrichPlan
NO_LABELS = Labels()


@dataclass(frozen=True, slots=True)
class ComputationForm:
    """How a computation takes columns, None for a computation that takes records one by one.
    ``why`` it does so, or why its state is in rows all the same, as a phrase; "" for state in
    columns. ``results``: why they leave the columns, "" where they need not."""

    plan: AnyPlan | None
    why: str = ""
    results: str = ""


_WHY_NOT: dict[type[Work], str] = {
    CallbackSpec: "code of your own takes each record",
    WindowCallbackSpec: "code of your own takes each record",
    DictionarySpec: "a dictionary has no plan of its own",
    LookupSpec: "each record is enriched",
    DeduplicateSpec: "each record is compared with earlier ones",
    TableSpec: "a table takes each change",
    CopiesSpec: "each change goes to each copy",
}
"""Why work other than aggregations, steps and branches has no column form."""


def computation_form(
    computation: ComputationSpec,
    pipeline: PipelineSpec,
    load: Callable[[str], Any],
    compile_expression: Callable[[str], Any],
    labels: Labels = NO_LABELS,
) -> ComputationForm:
    """The form of one computation. ``load`` gives the object that ``module:name`` names."""
    form = _form_of(computation, pipeline, load, compile_expression, labels)
    results = "" if form.why else why_results_in_rows(computation, compile_expression)
    return replace(form, results=results)


def _form_of(
    computation: ComputationSpec,
    pipeline: PipelineSpec,
    load: Callable[[str], Any],
    compile_expression: Callable[[str], Any],
    labels: Labels,
) -> ComputationForm:
    if has_no_state(computation.work):
        return _stateless_form(computation, pipeline, compile_expression, labels)
    if isinstance(computation.work, SlicesSpec):
        slices = slice_plan_or_why(computation, pipeline, compile_expression)
        if isinstance(slices, str):
            return ComputationForm(None, slices)
        return ComputationForm(slices, "slices are merged in rows")
    if isinstance(computation.work, TopSpec):
        first = first_rows_or_why(computation, pipeline, compile_expression)
        if isinstance(first, str):
            return ComputationForm(None, first)
        use = labels.of(computation.name)
        held = first_columns(computation, pipeline, first, use, compile_expression)
        why = "" if held else "the first rows of each key are kept in order"
        return ComputationForm(first, why)
    if isinstance(computation.work, EnrichSpec):
        use = labels.of(computation.name)
        enriched = enrich_plan_or_why(computation, pipeline, use, compile_expression)
        if isinstance(enriched, str):
            return ComputationForm(None, enriched)
        return ComputationForm(enriched)
    if isinstance(computation.work, OverSpec):
        use = labels.of(computation.name)
        lookbacks = lookbacks_or_why(computation, pipeline, use, compile_expression)
        if isinstance(lookbacks, str):
            return ComputationForm(None, lookbacks)
        return ComputationForm(lookbacks)
    if why := _why_no_aggregation(computation, pipeline, compile_expression, labels):
        return ComputationForm(None, why)
    windowing = windowing_from_spec(computation, load, takes_retractions(computation, pipeline))
    plan = plan_or_why(computation, pipeline, windowing, compile_expression)
    if isinstance(plan, ColumnPlan):
        if computation.productions is Productions.WEAK and plan.fires_once:
            return ComputationForm(None, WEAK_IN_ROWS)
        return ComputationForm(plan, why_state_in_rows(computation, windowing, plan))
    streams = [pipeline.stream(each.stream) for each in computation.inputs]
    types = types_through if computation.is_change_log else types_of
    if any(stream.schema for stream in streams) or any(
        types(stream.name, pipeline, compile_expression) for stream in streams
    ):
        return ComputationForm(None, plan)
    plans = plans_by_type(computation, windowing, compile_expression, streams[0].timestamp)
    if isinstance(plans, str):
        return ComputationForm(None, plans)
    if plans.whole and streams[0].source is not None:
        return ComputationForm(None, "it keeps records with undeclared fields")
    return ComputationForm(plans, plans.why_in_rows(None))


def has_no_state(work: Work) -> bool:
    """Whether work follows from each record alone, or from a table that is held whole."""
    held = isinstance(work, EnrichSpec) and work.held
    return held or isinstance(work, StepsSpec | BranchesSpec)


def _stateless_form(
    computation: ComputationSpec,
    pipeline: PipelineSpec,
    compile_expression: Callable[[str], Any],
    labels: Labels,
) -> ComputationForm:
    """The form of a computation without state."""
    why = why_no_plan(computation, compile_expression, takes_retractions(computation, pipeline))
    if why:
        return ComputationForm(None, why)
    if labels.of(computation.name) != NO_USE:
        return ComputationForm(None, "timers behind it depend on the position of each record")
    plans = StatelessPlans(computation, compile_expression)
    for each in computation.inputs:
        stream = pipeline.stream(each.stream)
        if stream.schema:
            return ComputationForm(None, "a schema makes an object of each record")
        if why := _why_key_of_records(each, plans, stream):
            return ComputationForm(None, why)
        fields = types_of(each.stream, pipeline, compile_expression)
        if fields and isinstance(without := plans.plan_or_why(fields), str):
            return ComputationForm(None, without)
    return ComputationForm(plans)


def _why_key_of_records(source_input: InputSpec, plans: StatelessPlans, stream: StreamSpec) -> str:
    """Why a key cannot be read from the columns that a source makes, "" where it can."""
    if stream.source is None:
        return ""
    if source_input.key.kind is KeyKind.FUNCTION:
        return "its key is code of your own, which takes each record"
    undeclared = sorted(plans.key_fields - stream.fields.keys()) if stream.fields else []
    return f"its key reads {undeclared[0]}, which is not declared" if undeclared else ""


def _why_no_aggregation(
    computation: ComputationSpec,
    pipeline: PipelineSpec,
    compile_expression: Callable[[str], Any],
    labels: Labels,
) -> str:
    """Why a computation is not an aggregation over windows; "" when it is."""
    match computation.work:
        case AggregationSpec():
            return WEAK_IN_ROWS if computation.identified else ""
        case JoinSpec():
            in_columns = window_of_join(computation, pipeline) is not None
            phrase = "keeps whole bundles of them" if in_columns else "has an entry for each window"
            return f"a join passes on records as they came, and {phrase}"
        case IntervalJoinSpec() | RegularJoinSpec():
            pairing = near_pairing(computation, pipeline, compile_expression, labels)
            return pairing if isinstance(pairing, str) else "one input comes record by record"
        case work:
            return _WHY_NOT[type(work)]
