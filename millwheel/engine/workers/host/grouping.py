"""How records are grouped for each computation that takes groups in place of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millwheel.connect.own_functions import language_of
from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.machines.choice import combined_window, why_not_combined
from millwheel.core.machines.specs import windowing_from_spec
from millwheel.core.model.names import NodeName
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import AggregationSpec
from millwheel.core.windows.windows import Tumbling
from millwheel.engine.workers.delivery.combining import ConsumerGroups
from millwheel.engine.workers.delivery.row_groups import Decode, RowGrouping

Plan = ColumnPlan | PlansByType


def groupings_of(
    spec: PipelineSpec, plans: Mapping[str, Plan], load: Callable[[str], Any], decode: Decode
) -> dict[NodeName, ConsumerGroups]:
    """By computation. ``plans``: of those that take columns; ``load`` returns the object named
    ``module:name``."""
    groupings = {}
    for computation in spec.computations:
        plan = plans.get(computation.name)
        columns = plan if plan is not None and plan.combines else None
        rows = _rows(computation, spec, plan, load, decode)
        if columns is not None or rows is not None:
            groupings[NodeName(computation.name)] = ConsumerGroups(columns, rows)
    return groupings


def why_no_groups(
    computation: ComputationSpec, spec: PipelineSpec, load: Callable[[str], Any]
) -> str:
    """Why a computation without :class:`.ConsumerGroups` has none, as a phrase."""
    compiled = _compiled(computation, spec, load)
    return compiled if isinstance(compiled, str) else ""


def _rows(
    computation: ComputationSpec,
    spec: PipelineSpec,
    plan: Plan | None,
    load: Callable[[str], Any],
    decode: Decode,
) -> RowGrouping | None:
    compiled = _compiled(computation, spec, load)
    if isinstance(compiled, str):
        return None
    window, aggregation = compiled
    return RowGrouping(
        NodeName(computation.name), window, aggregation, _plan_of(plan), decode, spec.limits.record
    )


def _compiled(
    computation: ComputationSpec, spec: PipelineSpec, load: Callable[[str], Any]
) -> tuple[Tumbling, Aggregation] | str:
    """The windows of groups and the aggregation of their records, or why there are none."""
    if not aggregates_in_windows(computation):
        return "it does not aggregate in windows"
    if any(
        each.name == node_input.stream and each.schema
        for each in spec.streams
        for node_input in computation.inputs
    ):
        return "its input has a schema"  # a record that cannot be used is handed on as plain data
    retractions = takes_retractions(computation, spec)
    windowing = windowing_from_spec(computation, load, retractions)
    aggregation = compile_aggregation(
        computation.aggregates,
        language_of(spec).compile,
        load,
        computation.condition,
        computation.stage,
        retractions,
    )
    why = why_not_combined(computation, windowing, aggregation)
    if why:
        return why
    window = combined_window(windowing.window)
    assert window is not None  # otherwise ``why`` has the reason
    return window, aggregation


def aggregates_in_windows(computation: ComputationSpec) -> bool:
    """Whether groups are considered at all."""
    return isinstance(computation.work, AggregationSpec) and bool(computation.aggregates)


def _plan_of(plan: Plan | None) -> Callable[[ColumnBatch], ColumnPlan | None]:
    if isinstance(plan, PlansByType):
        return plan.of
    return lambda batch: plan
