"""The form in which a source reads, as its consumers can take it, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from millwheel.core.columns.batch import ID_TYPES
from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.forms.computations import AnyPlan
from millwheel.core.columns.forms.joins import window_of_join
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.columns.stateless.plans import StatelessPlans
from millwheel.core.expressions.inner_fields import is_inner, plainly_named
from millwheel.core.pipeline.graph import Graph, Node
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import InputSpec, PipelineSpec, Productions, StreamSpec
from millwheel.core.pipeline.work import (
    DictionarySpec,
)


@dataclass(frozen=True, slots=True)
class MadeColumns:
    """Columns that a source makes of the records it has read one by one: the consumers ``nodes``
    get the fields ``needs`` if ``accepts`` is true of their types. ``whole``: they pass records on,
    so they get all fields, if all records of a read have the same ones, in the same order.
    ``beside``: the columns for other consumers."""

    nodes: frozenset[str]
    needs: frozenset[str]
    accepts: Callable[[Mapping[str, str]], bool]
    whole: bool = False
    beside: MadeColumns | None = None

    @property
    def consumers(self) -> frozenset[str]:
        """All consumers that get columns."""
        return self.nodes | (self.beside.consumers if self.beside is not None else frozenset())


@dataclass(frozen=True, slots=True)
class SourceForm:
    """How a source reads. ``needs`` are the fields that the consumers read, if columns of declared
    fields go to all of them. ``inferred`` are those whose types are inferred from the data, if none
    is declared; ``accepts``: whether all consumers can use fields of some types. Neither: record by
    record, and ``why``, as a phrase. ``made``: the part of a read of records that goes to consumers
    as columns all the same. ``whole``: a consumer passes on all fields, so a read in which some are
    not declared is made of records."""

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


def source_form(
    stream: StreamSpec,
    graph: Graph,
    plans: Mapping[str, AnyPlan | None],
    joins: Set[str] = frozenset(),
) -> SourceForm:
    """The form of a source stream; ``plans`` are those of the computations, by name, and ``joins``
    those that take columns."""
    consumers = graph.consumers.get(stream.name, ())
    made_columns = _made_columns(stream, consumers, graph, plans)
    if why := _why_rows_of(stream, consumers, graph, plans, joins):
        return SourceForm(why=why, made=made_columns)
    if not joins.isdisjoint(consumers) or any(map(_passes_on, map(plans.get, consumers))):
        return SourceForm(needs=frozenset(stream.fields), whole=True, made=made_columns)
    consumer_plans = [plans.get(name) for name in consumers]
    by_type = [plan for plan in consumer_plans if isinstance(plan, PlansByType | StatelessPlans)]
    if by_type and not stream.fields:
        names = _time_and_id(stream).union(
            *(plan.needs for plan in by_type),
            *(plan.key_fields for plan in by_type if isinstance(plan, StatelessPlans)),
        )

        def accepts(fields: Mapping[str, str]) -> bool:
            typed = (stream.arrival or fields[stream.timestamp] == "int") and (
                not stream.id or fields[stream.id] in ID_TYPES
            )
            return typed and all(plan.plan(fields) is not None for plan in by_type)

        return SourceForm(inferred=frozenset(names), accepts=accepts, made=made_columns)
    needs = {stream.timestamp} - {""}
    for name, plan in zip(consumers, consumer_plans, strict=True):
        computation = graph.nodes[name].computation
        if isinstance(plan, ColumnPlan | StatelessPlans):
            needs |= {*plan.key_fields, *plan.needs}
        elif computation is not None and isinstance(computation.work, DictionarySpec):
            needs |= {computation.work.of, *(computation.work.keep or stream.fields)}
    return SourceForm(needs=frozenset(needs), made=made_columns)


def joins_in_columns(
    pipeline: PipelineSpec,
    graph: Graph,
    plans: Mapping[str, AnyPlan | None],
    near: Set[str],
) -> frozenset[str]:
    """The joins that take whole records in columns. Both inputs come in columns, or neither: rows
    are joined in rows. ``plans`` are those of the other computations, by name; ``near`` are the
    joins without a window that take whole bundles."""
    joins = near | {
        spec.name for spec in pipeline.computations if window_of_join(spec, pipeline) is not None
    }

    def comes(node_input: InputSpec, name: str) -> bool:
        stream, key = pipeline.stream(node_input.stream), node_input.key
        if stream.source is None and name in near:
            return True  # its types follow from the columns
        keyed = key.plain and all(stream.fields.get(name) in ID_TYPES for name in key.fields)
        if stream.source is None or not keyed:
            return False
        return not _why_rows_of(stream, graph.consumers.get(stream.name, ()), graph, plans, joins)

    while without := {
        name for name in joins if not all(comes(each, name) for each in graph.nodes[name].inputs)
    }:
        joins -= without
    return frozenset(joins)


def _passes_on(plan: AnyPlan | None) -> bool:
    """Whether all fields of the records are in the results."""
    if isinstance(plan, StatelessPlans):
        return not plan.projects
    return plan is not None and plan.whole


def _time_and_id(stream: StreamSpec) -> set[str]:
    return {stream.timestamp, stream.id} - {""}


def _made_columns(
    stream: StreamSpec, consumers: Sequence[str], graph: Graph, plans: Mapping[str, AnyPlan | None]
) -> MadeColumns | None:
    """The columns for consumers, made of records that are read one by one."""
    if stream.schema or (stream.source is not None and stream.source.kind == "injection"):
        return None
    if stream.id and stream.fields.get(stream.id, "str") not in ID_TYPES:
        return None
    consumer_plans: dict[str, AnyPlan] = {}
    for name in consumers:
        plan = plans.get(name)
        node = graph.nodes[name]
        # Late records are passed on with all of their fields.
        aside = node.computation is not None and bool(node.computation.late_side)
        whole = not aside and all(each.key.instances == 1 for each in node.inputs)
        if isinstance(plan, StatelessPlans) and stream.fields and not plan.plan(stream.fields):
            continue
        if plan is not None and whole and not _why_ids_of_records(stream, [name], graph):
            consumer_plans[name] = plan
    passing = {name: plan for name, plan in consumer_plans.items() if _passes_on(plan)}
    others = {name: plan for name, plan in consumer_plans.items() if name not in passing}
    made = _made_for(others, False) if others else None
    return replace(_made_for(passing, True), beside=made) if passing else made


def _made_for(consumer_plans: Mapping[str, AnyPlan], whole: bool) -> MadeColumns:
    by_type = [
        plan for plan in consumer_plans.values() if isinstance(plan, PlansByType | StatelessPlans)
    ]
    keys = {
        name
        for plan in consumer_plans.values()
        if isinstance(plan, ColumnPlan | StatelessPlans)
        for name in plan.key_fields
    }
    return MadeColumns(
        frozenset(consumer_plans),
        frozenset(keys.union(*(plan.needs for plan in consumer_plans.values()))),
        lambda fields: all(plan.plan(fields) is not None for plan in by_type),
        whole,
    )


def _why_rows_of(
    stream: StreamSpec,
    consumers: Sequence[str],
    graph: Graph,
    plans: Mapping[str, AnyPlan | None],
    joins: Set[str],
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
        numbers = computation is not None and isinstance(computation.work, DictionarySpec)
        if plans.get(name) is None and name not in joins and not numbers:
            return f"{name} takes each record"
    by_type = [
        plan
        for name in consumers
        if isinstance(plan := plans.get(name), PlansByType | StatelessPlans)
    ]
    if inner := sorted(name for plan in by_type for name in plan.needs if is_inner(name)):
        return f"{plainly_named(inner[0])} is a field within a field"
    if not stream.fields and any(map(_passes_on, map(plans.get, consumers))):
        return "its records are passed on with undeclared fields"
    stateless = any(isinstance(plans.get(name), StatelessPlans) for name in consumers)
    if any(isinstance(plans.get(name), PlansByType) for name in consumers) or (
        stateless and not stream.fields
    ):
        if any(plans.get(name) is None for name in consumers):
            return "a dictionary or a join needs declared fields"
        if not stream.arrival and (not stream.timestamp or ":" in stream.timestamp):
            return "its timestamp is not a field"
    elif stream.schema:
        return "a schema makes an object of each record"
    elif not stream.arrival and stream.fields.get(stream.timestamp) != "int":
        return "its timestamp is not declared as int"
    elif stream.id and stream.fields.get(stream.id) not in ID_TYPES:
        return f"the id {stream.id} is not declared as int or str"
    return _why_ids_of_records(stream, consumers, graph)


def _why_ids_of_records(stream: StreamSpec, consumers: Sequence[str], graph: Graph) -> str:
    """Which consumer needs the ids of single records: to name weak productions, or to divide a key;
    "" for none."""
    for name in consumers if stream.id else ():
        node = graph.nodes[name]
        if node.computation is not None and node.computation.productions is Productions.WEAK:
            return f"the weak productions of {name} are named after ids of records"
        if any(each.key.instances > 1 for each in node.inputs):
            return f"the key of {name} is divided by ids of records"
        if _takes_producer_key(node, stream.name):
            return f"the key of {name} is the id of each record"
    return ""


def _takes_producer_key(node: Node, stream: str) -> bool:
    """Whether a consumer takes the key that the producer of a stream gives."""
    return any(each.key.kind is KeyKind.RECORD for each in node.inputs if each.stream == stream)
