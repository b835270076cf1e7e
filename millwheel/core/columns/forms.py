"""The form in which a computation or a source takes records: columns, or one by one; and why. Workers ask here, and
``millwheel explain``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from millwheel.core.aggregates.columns import OverRanges
from millwheel.core.columns.arrays import can_assign
from millwheel.core.columns.batch import ID_TYPES
from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.plan import ColumnPlan, typed_plan
from millwheel.core.columns.slices import slice_plan_or_why
from millwheel.core.columns.state.inferred import PlansByType
from millwheel.core.machines.specs import windowing_from_spec
from millwheel.core.pipeline.graph import Graph, takes_retractions
from millwheel.core.pipeline.spec import (
    AggregationStage,
    ComputationSpec,
    InputSpec,
    KeyKind,
    PipelineSpec,
    Productions,
    StreamSpec,
)
from millwheel.core.triggers.triggers import AfterWatermark, Default
from millwheel.core.windowing.contract import LatePolicy, Windowing
from millwheel.core.windows.panes import Accumulation, OutputTime
from millwheel.core.windows.windows import Count, Cumulative, Global, SessionPieces, Sessions, Sliding, Tumbling

Plan: TypeAlias = ColumnPlan | PlansByType
_WINDOWS: Mapping[type, str] = {Cumulative: "cumulative windows", Count: "count windows"}
_WEAK = "weak productions have ids, which columns of results do not carry"


@dataclass(frozen=True, slots=True)
class ComputationForm:
    """How a computation takes columns, None for a computation that takes records one by one. ``why`` it does so, or why
    its state is in rows all the same, as a phrase; "" for state in columns."""

    plan: Plan | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class MadeColumns:
    """Columns that a source makes of the records it has read one by one: the consumers ``nodes`` get the fields
    ``needs`` if ``accepts`` says that they can do with their types."""

    nodes: frozenset[str]
    needs: frozenset[str]
    accepts: Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class SourceForm:
    """How a source reads. ``needs`` are the fields that the consumers read, if columns of declared fields go to all of
    them. ``inferred`` are those whose types are inferred from what is read, if none is declared; ``accepts`` says
    whether all consumers can do with fields of some types. Neither: record by record, and ``why``, as a phrase.
    ``made``: what of a read of records goes to consumers as columns all the same. ``whole``: a consumer passes on all
    fields, so a read in which some are not declared is made of records."""

    needs: frozenset[str] | None = None
    inferred: frozenset[str] | None = None
    accepts: Callable[[Mapping[str, str]], bool] = lambda fields: False
    why: str = ""
    made: MadeColumns | None = None
    whole: bool = False

    @property
    def in_columns(self) -> bool:
        """Whether it reads columns where its format has them."""
        return self.needs is not None or self.inferred is not None


def computation_form(
    computation: ComputationSpec,
    pipeline: PipelineSpec,
    load: Callable[[str], Any],
    compile_expression: Callable[[str], Any],
) -> ComputationForm:
    """The form of one computation. ``load`` gives the object that ``module:name`` names."""
    if computation.slices is not None:
        slices = slice_plan_or_why(computation, pipeline, compile_expression)
        if isinstance(slices, str):
            return ComputationForm(None, slices)
        return ComputationForm(slices, "slices are merged in rows")
    if why := _why_no_aggregation(computation, pipeline):
        return ComputationForm(None, why)
    windowing = windowing_from_spec(computation, load, takes_retractions(computation, pipeline))
    plan = plan_or_why(computation, pipeline, windowing, compile_expression)
    if isinstance(plan, ColumnPlan):
        if computation.productions is Productions.WEAK and plan.fires_once:
            return ComputationForm(None, _WEAK)
        return ComputationForm(plan, _why_state_in_rows(computation, windowing, plan))
    streams = [pipeline.stream(given.stream) for given in computation.inputs]
    if any(stream.fields or stream.schema for stream in streams):
        return ComputationForm(None, plan)
    plans = plans_by_type(computation, windowing, compile_expression)
    if isinstance(plans, str):
        return ComputationForm(None, plans)
    return ComputationForm(plans, plans.why_in_rows(None))


def _why_no_aggregation(computation: ComputationSpec, pipeline: PipelineSpec) -> str:
    """Why a computation is no aggregation over windows; "" when it is."""
    if computation.callback:
        return "code of your own takes each record"
    if computation.join is not None:
        kept = (
            "keeps whole bundles of them" if window_of_join(computation, pipeline) else "has an entry for each window"
        )
        return f"a join passes on records as they came, and {kept}"
    if computation.window is None:
        return _kind_of_steps(computation)
    return _WEAK if computation.identified else ""


def _kind_of_steps(computation: ComputationSpec) -> str:
    if computation.dictionary is not None:
        return "a dictionary has no plan of its own"
    if computation.enrich is not None or computation.lookup is not None:
        return "each record is enriched"
    if computation.deduplicate is not None:
        return "each record is compared with earlier ones"
    if computation.table is not None:
        return "a table takes each change"
    return "branches take each record" if computation.branches else "steps take each record"


def window_of_join(spec: ComputationSpec, pipeline: PipelineSpec) -> Tumbling | None:
    """The windows of a join that can do without an entry for each key and window; None for what cannot. Weak
    productions are named by single records."""
    back = takes_retractions(spec, pipeline)
    if spec.join is None or spec.window is None or spec.window.kind != "tumbling" or back:
        return None
    windowing = windowing_from_spec(spec)
    window = windowing.window
    plain = isinstance(window, Tumbling) and not window.empty and windowing.output_time is OutputTime.END_OF_WINDOW
    return window if isinstance(window, Tumbling) and plain and not spec.identified and not spec.condition else None


def joins_in_columns(pipeline: PipelineSpec, graph: Graph, plans: Mapping[str, Plan | None]) -> frozenset[str]:
    """The joins that take whole records in columns. Both inputs come so, or neither: what comes in rows is joined in
    rows. ``plans`` are those of the other computations, by name."""
    found = {spec.name for spec in pipeline.computations if window_of_join(spec, pipeline) is not None}

    def comes(given: InputSpec) -> bool:
        stream, key = pipeline.stream(given.stream), given.key
        keyed = key.fields and all(stream.fields.get(name) in ID_TYPES for name in key.fields)
        if stream.source is None or not keyed:
            return False
        return not _why_rows_of(stream, graph.consumers.get(stream.name, ()), graph, plans, found)

    while without := {name for name in found if not all(map(comes, graph.nodes[name].inputs))}:
        found -= without
    return frozenset(found)


def source_form(
    stream: StreamSpec, graph: Graph, plans: Mapping[str, Plan | None], joins: Set[str] = frozenset()
) -> SourceForm:
    """The form of a source stream; ``plans`` are those of the computations, by name, and ``joins`` those that take
    columns."""
    consumers = graph.consumers.get(stream.name, ())
    made = _made_columns(stream, consumers, graph, plans)
    if why := _why_rows_of(stream, consumers, graph, plans, joins):
        return SourceForm(why=why, made=made)
    if not joins.isdisjoint(consumers):
        return SourceForm(needs=frozenset(stream.fields), whole=True, made=made)
    found = [plans.get(name) for name in consumers]
    by_type = [plan for plan in found if isinstance(plan, PlansByType)]
    if by_type:
        names = {stream.timestamp, stream.id or stream.timestamp}.union(*(plan.needs for plan in by_type))

        def accepts(fields: Mapping[str, str]) -> bool:
            typed = fields[stream.timestamp] == "int" and (not stream.id or fields[stream.id] in ID_TYPES)
            return typed and all(plan.plan(fields) is not None for plan in by_type)

        return SourceForm(inferred=frozenset(names), accepts=accepts, made=made)
    needs = {stream.timestamp}
    for name, plan in zip(consumers, found, strict=True):
        computation = graph.nodes[name].computation
        if isinstance(plan, ColumnPlan):
            needs |= {*plan.key_fields, *plan.needs}
        elif computation is not None and (given := computation.dictionary) is not None:
            needs |= {given.of, *(given.keep or stream.fields)}
    return SourceForm(needs=frozenset(needs), made=made)


def _made_columns(
    stream: StreamSpec, consumers: Sequence[str], graph: Graph, plans: Mapping[str, Plan | None]
) -> MadeColumns | None:
    """What consumers get as columns of records that are read one by one."""
    if stream.schema or (stream.source is not None and stream.source.kind == "injection"):
        return None
    if stream.id and stream.fields.get(stream.id, "str") not in ID_TYPES:
        return None
    found = {}
    for name in consumers:
        plan = plans.get(name)
        node = graph.nodes[name]
        # Late records are passed on with all of their fields.
        aside = node.computation is not None and bool(node.computation.late_side)
        whole = not aside and all(given.key.instances == 1 for given in node.inputs)
        if plan is not None and whole and not _why_ids_of_records(stream, [name], graph):
            found[name] = plan
    if not found:
        return None
    by_type = [plan for plan in found.values() if isinstance(plan, PlansByType)]
    keys = {name for plan in found.values() if isinstance(plan, ColumnPlan) for name in plan.key_fields}
    return MadeColumns(
        frozenset(found),
        frozenset(keys.union(*(plan.needs for plan in found.values()))),
        lambda fields: all(plan.plan(fields) is not None for plan in by_type),
    )


def _why_rows_of(
    stream: StreamSpec, consumers: Sequence[str], graph: Graph, plans: Mapping[str, Plan | None], joins: Set[str]
) -> str:
    """Why a source reads record by record; "" when it reads columns."""
    if stream.source is not None and stream.source.kind == "injection":
        return "records are injected one by one"
    if not consumers:
        return "nothing consumes them"
    if patterns := sorted(filter(is_pattern, stream.fields)):
        return f"the library of columns takes the name of the field {patterns[0]} for a pattern"
    for name in consumers:
        computation = graph.nodes[name].computation
        if plans.get(name) is None and name not in joins and (computation is None or computation.dictionary is None):
            return f"{name} takes each record"
    if any(isinstance(plans.get(name), PlansByType) for name in consumers):
        if any(plans.get(name) is None for name in consumers):
            return "a dictionary or a join needs declared fields"
        if not stream.timestamp or ":" in stream.timestamp:
            return "its timestamp is no field"
    elif stream.schema:
        return "a schema makes an object of each record"
    elif stream.fields.get(stream.timestamp) != "int":
        return "its timestamp is not declared as int"
    elif stream.id and stream.fields.get(stream.id) not in ID_TYPES:
        return f"the id {stream.id} is not declared as int or str"
    return _why_ids_of_records(stream, consumers, graph)


def _why_ids_of_records(stream: StreamSpec, consumers: Sequence[str], graph: Graph) -> str:
    """Which consumer needs the ids of single records: to name weak productions, or to divide a key; "" for none."""
    for name in consumers if stream.id else ():
        node = graph.nodes[name]
        if node.computation is not None and node.computation.productions is Productions.WEAK:
            return f"the weak productions of {name} are named after ids of records"
        if any(given.key.instances > 1 for given in node.inputs):
            return f"the key of {name} is divided by ids of records"
    return ""


# --- aggregations over windows ---------------------------------------------------------------------------


def column_plan(
    spec: ComputationSpec, pipeline: PipelineSpec, windowing: Windowing, compile_expression: Callable[[str], Any]
) -> ColumnPlan | None:
    """The plan of a computation, None when it has no column form."""
    found = plan_or_why(spec, pipeline, windowing, compile_expression)
    return found if isinstance(found, ColumnPlan) else None


def plan_or_why(
    spec: ComputationSpec, pipeline: PipelineSpec, windowing: Windowing, compile_expression: Callable[[str], Any]
) -> ColumnPlan | str:
    """The plan of a computation, or why it has no column form, as a phrase.

    It has one when its one input is a stream with declared ``fields``, its key consists of them, its windows depend on
    nothing but timestamps, and nothing is asked of single records that are taken back.
    """
    if why := _why_no_columns(spec, windowing):
        return why
    plan = typed_plan(spec, windowing.window, pipeline.stream(spec.inputs[0].stream).fields, compile_expression)
    return plan if isinstance(plan, str) else replace(plan, fires_once=not _why_state_in_rows(spec, windowing, plan))


def _why_state_in_rows(spec: ComputationSpec, windowing: Windowing, plan: ColumnPlan | None) -> str:
    """Why columns do not hold the state of a plan's windows, as a phrase; "" when they do. None for the plans of all
    types."""
    if why := _fires_again(windowing):
        return why
    if isinstance(windowing.window, Cumulative | Count):
        return f"{_WINDOWS[type(windowing.window)]} are merged in rows"
    if spec.queryable:
        return "results are kept one by one to be asked"
    if plan is None:
        window = windowing.window
        changing = isinstance(window, Sessions) or (isinstance(window, Sliding) and window.changes)
        without = [each.name for each in spec.aggregates if ":" in each.function]
        if changing:
            return "types that are not declared may change"
        return f"no column holds the aggregate {without[0]}" if without else ""
    if spec.stage is not AggregationStage.WHOLE and (plan.steps is not None or isinstance(plan.window, Sessions)):
        return "its key is divided"
    parts = zip(plan.names, plan.aggregates, strict=True) if plan.steps is not None else ()
    without = [name for name, each in parts if each.over_ranges is OverRanges.UNKNOWN]
    return f"no column holds the aggregate {without[0]}" if without else ""


def plans_by_type(
    spec: ComputationSpec, windowing: Windowing, compile_expression: Callable[[str], Any]
) -> PlansByType | str:
    """The plans of a computation whose input declares no fields; or why it has no column form for any types."""
    if why := _why_no_columns(spec, windowing):
        return why
    if spec.late_side:
        return "late records are passed on with all of their fields, which are not declared"
    if spec.stage is not AggregationStage.WHOLE:
        return "a divided key needs declared fields"

    def why_in_rows(plan: ColumnPlan | None) -> str:
        return _WEAK if spec.productions is Productions.WEAK else _why_state_in_rows(spec, windowing, plan)

    return PlansByType(spec, windowing, compile_expression, why_in_rows)


def _why_no_columns(spec: ComputationSpec, windowing: Windowing) -> str:
    """Why an aggregation has no column form whatever its fields are, as a phrase; "" when it may have one."""
    if spec.stage is AggregationStage.FINAL:
        return "accumulators are merged one by one"
    if len(spec.inputs) != 1:
        return "it has several inputs"
    if spec.inputs[0].key.kind not in (KeyKind.FIELD, KeyKind.FIELDS):
        return "its key is no field"
    if not spec.aggregates:
        return "its result is the records"
    return _why_no_groups(windowing)


def _fires_again(windowing: Windowing) -> str:
    """Why a window may fire other than once, as the watermark passes its end, and then for late records alone; "" when
    it may not."""
    window, trigger = windowing.window, windowing.trigger
    stays = isinstance(window, Tumbling | Global) or (isinstance(window, Sliding) and not window.changes)
    late = isinstance(trigger, AfterWatermark) and trigger.early is None and not trigger.shares()
    if not isinstance(trigger, Default):
        closes = isinstance(trigger, AfterWatermark) and trigger.late is None and windowing.allowed_lateness > 0
        if not late or not stays or closes:
            return "its trigger decides when windows fire"
    if windowing.accumulation is Accumulation.RETRACTING and not stays:
        return "results are taken back"
    if windowing.allowed_lateness and not stays:
        return "late records are allowed"
    return "windows of silent keys fire empty" if isinstance(window, Tumbling) and window.empty else ""


def _adds_steps(windowing: Windowing) -> bool:
    """Whether each step of cumulative windows is kept once, and not with every window that contains it."""
    return isinstance(windowing.trigger, Default) and windowing.late is LatePolicy.DROP


def _why_no_groups(windowing: Windowing) -> str:
    """Why windows cannot take the records of a bundle together; "" when they can."""
    window = windowing.window
    if windowing.takes_retractions:
        return "records can be taken back"
    if isinstance(window, Sessions) and (why := _fires_again(windowing)):
        return f"sessions look at each record where {why}"
    if not can_assign(window) and not isinstance(window, Count | Sessions):
        return "its windows are code of your own"
    if isinstance(window, Cumulative) and not _adds_steps(windowing):
        return "cumulative windows with a trigger or late: refire look at each record"
    if windowing.trigger.needs_bytes:
        return "its trigger measures each record"
    begins = windowing.output_time is OutputTime.EARLIEST and isinstance(window, SessionPieces)
    if windowing.output_time is not OutputTime.END_OF_WINDOW and not begins:
        return "output_time looks at each record"
    return ""
