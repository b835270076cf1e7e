"""Whether an aggregation over windows runs on columns, in which form it keeps its windows, and why
not in another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from millwheel.core.aggregates.columns import OverRanges
from millwheel.core.aggregates.families.distinct import LastingDistincts
from millwheel.core.aggregates.functions import keeps_records
from millwheel.core.columns.arrays import can_assign
from millwheel.core.columns.from_spec import typed_plan
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.columns.stateless.flow import follows_types, types_of, types_through
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import (
    AggregationStage,
    ComputationSpec,
    PipelineSpec,
    Productions,
)
from millwheel.core.pipeline.work import AggregationSpec
from millwheel.core.windows.combinations import EACH_BUNDLE
from millwheel.core.windows.contract import LatePolicy, Windowing
from millwheel.core.windows.panes import Accumulation, OutputTime
from millwheel.core.windows.triggers import AfterWatermark, Default
from millwheel.core.windows.windows import (
    Count,
    Cumulative,
    Forever,
    Global,
    OfInput,
    SessionPieces,
    Sessions,
    Sliding,
    Tumbling,
    WindowPieces,
)

_WINDOWS: Mapping[type, str] = {Cumulative: "cumulative windows", Count: "count windows"}
_BACK = "records can be taken back"
WEAK_IN_ROWS = "weak productions have ids, which columns of results do not carry"


def plan_or_why(
    spec: ComputationSpec,
    pipeline: PipelineSpec,
    windowing: Windowing,
    compile_expression: Callable[[str], Any],
) -> ColumnPlan | str:
    """The plan of a computation, or why it has no column form, as a phrase.

    It has one when the types of the fields of its one input are known, its key consists of them,
    its windows depend on nothing but timestamps, and no single record has to be looked at when it
    is taken back.
    """
    if why := _why_no_columns(spec, windowing):
        return why
    stream = pipeline.stream(spec.inputs[0].stream)
    fields = input_types(spec, pipeline, compile_expression)
    plan = typed_plan(spec, windowing.window, fields, compile_expression, stream.timestamp)
    if isinstance(plan, str):
        return plan
    if follows_types(stream.name, pipeline):
        # The sum is not declared to be one of floats, so an empty one is a whole 0, as in rows.
        plan = replace(plan, floats=(), follows=True)
    why = why_state_in_rows(spec, windowing, plan)
    if windowing.takes_retractions and why:
        return f"{_BACK}, and {why}"
    versions = isinstance(windowing.window, Forever)
    if versions and not why:
        plan = replace(plan, aggregates=tuple(each.lasting() for each in plan.aggregates))
    return replace(
        plan,
        most=pipeline.limits.state if plan.whole else 0,
        fires_once=not why and not versions,
        versions=not why and versions,
        takes_back=windowing.takes_retractions,
    )


def input_types(
    spec: ComputationSpec, pipeline: PipelineSpec, compile_expression: Callable[[str], Any]
) -> Mapping[str, str]:
    """The types of the fields of the one input of an aggregation, as far as they are known before
    it runs."""
    types = types_of if not spec.is_change_log else types_through
    return types(spec.inputs[0].stream, pipeline, compile_expression)


def why_state_in_rows(spec: ComputationSpec, windowing: Windowing, plan: ColumnPlan | None) -> str:
    """Why columns do not hold the state of a plan's windows, as a phrase; "" when they do. None for
    the plans of all types."""
    changes = isinstance(windowing.window, Forever)
    if why := _why_versions_apart(spec, windowing) if changes else _fires_again(windowing):
        return why
    if not changes and any(map(keeps_records, spec.aggregates)):
        return "whole records are kept in rows"
    if isinstance(windowing.window, Cumulative | Count):
        return f"{_WINDOWS[type(windowing.window)]} are merged in rows"
    if isinstance(spec.work, AggregationSpec) and spec.work.queryable:
        return "results are kept one by one for queries"
    if plan is None:
        window = windowing.window
        changing = isinstance(window, Sessions | Forever)
        changing = changing or (isinstance(window, Sliding) and window.changes)
        without = [each.name for each in spec.aggregates if ":" in each.function]
        if changing:
            return "types that are not declared may change"
        return f"no column holds the aggregate {without[0]}" if without else ""
    if spec.stage is not AggregationStage.WHOLE and (
        plan.steps is not None or isinstance(plan.window, Sessions | Forever)
    ):
        return "its key is divided"
    parts = zip(plan.names, plan.aggregates, strict=True) if changes else ()
    if growing := [name for name, each in parts if each.lasting().grows]:
        return f"the state of {growing[0]} grows, and a part of it changes at a time"
    if isinstance(windowing.window, Forever) and windowing.window.ttl is not None:
        forms = [each.lasting() for each in plan.aggregates]
        if windowing.takes_retractions or any(isinstance(each, LastingDistincts) for each in forms):
            return "each group is forgotten by itself"
    parts = zip(plan.names, plan.aggregates, strict=True) if windowing.takes_retractions else ()
    if all_kept := [name for name, each in parts if not each.subtracts]:
        return f"{all_kept[0]} needs all that are left"
    parts = zip(plan.names, plan.aggregates, strict=True) if plan.steps is not None else ()
    without = [name for name, each in parts if each.over_ranges is OverRanges.UNKNOWN]
    return f"no column holds the aggregate {without[0]}" if without else ""


def plans_by_type(
    spec: ComputationSpec,
    windowing: Windowing,
    compile_expression: Callable[[str], Any],
    timestamp: str = "",
) -> PlansByType | str:
    """The plans of a computation whose input declares no fields; or why it has no column form for
    any types. ``timestamp``: the field that all records of its input have, if there is one."""
    if why := _why_no_columns(spec, windowing):
        return why
    if windowing.takes_retractions:
        return _BACK
    if spec.late_side:
        return "late records are passed on with all of their fields, which are not declared"
    if spec.stage is not AggregationStage.WHOLE:
        return "a divided key needs declared fields"

    def why_in_rows(plan: ColumnPlan | None) -> str:
        return (
            WEAK_IN_ROWS
            if spec.productions is Productions.WEAK
            else why_state_in_rows(spec, windowing, plan)
        )

    plans = PlansByType(spec, windowing, compile_expression, why_in_rows, timestamp)
    return plans if plans.needs else "it reads no field of its records"


def _why_no_columns(spec: ComputationSpec, windowing: Windowing) -> str:
    """Why an aggregation has no column form with any fields, as a phrase; "" when it may have
    one."""
    if spec.stage is AggregationStage.FINAL:
        return "accumulators are merged one by one"
    if len(spec.inputs) != 1:
        return "it has several inputs"
    if spec.inputs[0].key.kind in (KeyKind.FUNCTION, KeyKind.RECORD):
        return "its key is not a field"
    if not spec.aggregates:
        return "its result is the records"
    if isinstance(windowing.window, Sessions) and any(map(keeps_records, spec.aggregates)):
        return "sessions look at each record where whole records are kept"
    return _why_no_groups(windowing)


def _why_versions_apart(spec: ComputationSpec, windowing: Windowing) -> str:
    """Why the groups of a change log are processed one by one; "" where they are not."""
    if spec.productions is Productions.WEAK:
        return WEAK_IN_ROWS
    if windowing.trigger != EACH_BUNDLE:
        return "its trigger decides when versions are emitted"
    return ""


def _fires_again(windowing: Windowing) -> str:
    """Why a window may fire other than once, as the watermark passes its end, and then for late
    records alone; "" when it may not."""
    window, trigger = windowing.window, windowing.trigger
    if isinstance(window, Forever):
        return "each group is merged with what its key has"
    stays = isinstance(window, Tumbling | Global | OfInput) or (
        isinstance(window, Sliding) and not window.changes
    )
    late = isinstance(trigger, AfterWatermark) and trigger.early is None and not trigger.shares()
    if not isinstance(trigger, Default):
        closes = (
            isinstance(trigger, AfterWatermark)
            and trigger.late is None
            and windowing.allowed_lateness > 0
        )
        if not late or not stays or closes:
            return "its trigger decides when windows fire"
    if windowing.accumulation is Accumulation.RETRACTING and not stays:
        return "results are taken back"
    if windowing.allowed_lateness and not stays:
        return "late records are allowed"
    return (
        "windows of silent keys fire empty" if isinstance(window, Tumbling) and window.empty else ""
    )


def _adds_steps(windowing: Windowing) -> bool:
    """Whether each step of cumulative windows is kept once, and not with every window that contains
    it."""
    return isinstance(windowing.trigger, Default) and windowing.late is LatePolicy.DROP


def _why_no_groups(windowing: Windowing) -> str:
    """Why windows cannot take the records of a bundle together; "" when they can."""
    window = windowing.window
    if windowing.takes_retractions and not isinstance(window, Forever):
        return _BACK
    if isinstance(window, Sessions) and (why := _fires_again(windowing)):
        return f"sessions look at each record where {why}"
    if isinstance(window, WindowPieces):
        return "a part of a divided key looks at each record"
    if not can_assign(window) and not isinstance(window, Count | OfInput | Sessions | Forever):
        return "its windows are code of your own"
    if isinstance(window, Cumulative) and not _adds_steps(windowing):
        return "cumulative windows with a trigger or late: refire look at each record"
    if windowing.trigger.needs_bytes:
        return "its trigger measures each record"
    begins = windowing.output_time is OutputTime.EARLIEST and isinstance(window, SessionPieces)
    if windowing.output_time is not OutputTime.END_OF_WINDOW and not begins:
        return "output_time looks at each record"
    return ""
