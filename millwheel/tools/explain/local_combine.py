"""Where senders may group records (local combine), and why not elsewhere. The decisions are the
workers' own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from millwheel.connect.own_functions import language_of
from millwheel.core.columns.forms.computations import Plan, computation_form
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.model.names import NodeName
from millwheel.core.pipeline.graph import Graph, Node
from millwheel.core.pipeline.spec import PipelineSpec, Productions
from millwheel.engine.workers.delivery.combining import (
    CombineLimits,
    Combining,
    combinings_of,
    why_never_grouped,
)
from millwheel.engine.workers.host.grouping import (
    aggregates_in_windows,
    groupings_of,
    why_no_groups,
)


def combined_of(
    spec: PipelineSpec, graph: Graph, load: Callable[[str], Any]
) -> dict[str, tuple[str, ...]]:
    """For each source and computation whose records a computation aggregates in windows: a line for
    each of its streams, ``local combine for clicks`` or ``no local combine for clicks: its keys are
    divided``. ``load`` gives the object that ``module:name`` names. Raises PipelineError for code
    that cannot be loaded."""
    compile_text = language_of(spec).compile
    plans = {
        each.name: computation_form(each, spec, load, compile_text).plan
        for each in spec.computations
    }
    column_plans: dict[str, Plan] = {
        name: plan for name, plan in plans.items() if isinstance(plan, ColumnPlan | PlansByType)
    }
    groupings = groupings_of(spec, column_plans, load, lambda stream, values: values)
    combinings = combinings_of(spec, graph, groupings, CombineLimits())
    reasons = {
        each.name: why_no_groups(each, spec, load)
        for each in spec.computations
        if NodeName(each.name) not in groupings
    }
    return {
        name: tuple(_lines(node, spec, graph, combinings, reasons))
        for name, node in graph.nodes.items()
    }


def _lines(
    node: Node,
    spec: PipelineSpec,
    graph: Graph,
    combinings: Mapping[str, Combining],
    reasons: Mapping[str, str],
) -> Iterator[str]:
    for stream in node.outputs:
        consumers = graph.consumers.get(stream, ())
        names = [
            each.name
            for each in spec.computations
            if each.name in consumers and aggregates_in_windows(each)
        ]
        combining = combinings.get(stream)
        taking = [
            each
            for each in names
            if combining is not None and NodeName(each) in combining.groupings
        ]
        never = why_never_grouped(stream, spec)
        why = never or _why_none(node, [each for each in consumers if each not in taking])
        if never:
            taking = names
        if taking:
            yield (
                f"no local combine for {', '.join(taking)}: {why}"
                if why
                else f"local combine for {', '.join(taking)}"
            )
        yield from (
            f"no local combine for {each}: {reasons[each]}" for each in names if each not in taking
        )


def _why_none(node: Node, others: list[str]) -> str:
    """The reason why a node sends records to consumers that take groups; ``others`` consume the
    same stream and take none."""
    if (
        node.stream is not None
        and node.stream.source is not None
        and node.stream.source.kind == "injection"
    ):
        return "records are injected one by one"
    if node.stream is not None:
        return f"records are read for {', '.join(others)}, too" if others else ""
    assert node.computation is not None
    return "productions are weak" if node.computation.productions is Productions.WEAK else ""
