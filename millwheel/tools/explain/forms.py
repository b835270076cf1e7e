"""The form in which each node takes its records, and why, in a few words. The decisions are the
workers' own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from millwheel.connect.own_functions import language_of
from millwheel.core.columns.forms.computations import ComputationForm, computation_form
from millwheel.core.columns.forms.joins import near_pairings
from millwheel.core.columns.forms.sources import SourceForm, joins_in_columns, source_form
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.columns.stateless.plans import StatelessPlans
from millwheel.core.order.labels import labels_of
from millwheel.core.pipeline.graph import Graph, Node
from millwheel.core.pipeline.spec import DEAD_LETTERS, AggregationStage, PipelineSpec
from millwheel.core.pipeline.work import DictionarySpec
from millwheel.core.rows.versions import EnrichPlan
from millwheel.language.spec.callback_code import LoadedCode

_BY_RECORD = "record by record"


def forms_of(spec: PipelineSpec, graph: Graph, load: Callable[[str], Any]) -> dict[str, str]:
    """A phrase for each node: ``read in columns``, ``taken record by record: its key is not a
    field``.
    ``load`` gives the object that ``module:name`` names. Raises PipelineError for code that cannot
    be loaded."""
    labels = labels_of(graph, LoadedCode(load))
    compile_text = language_of(spec).compile
    forms = {
        each.name: computation_form(each, spec, load, compile_text, labels)
        for each in spec.computations
    }
    plans = {name: form.plan for name, form in forms.items()}
    joins = joins_in_columns(spec, graph, plans, near_pairings(spec, compile_text, labels).keys())
    sources = {
        s.name: source_form(s, graph, plans, joins) for s in spec.streams if s.source is not None
    }
    arriving = _Arriving(graph, forms, sources, joins)
    return {name: _phrase(node, forms, sources, arriving) for name, node in graph.nodes.items()}


def _phrase(
    node: Node,
    forms: Mapping[str, ComputationForm],
    sources: Mapping[str, SourceForm],
    arriving: _Arriving,
) -> str:
    if node.stream is not None:
        return _source(sources[node.stream.name])
    single = next(
        (each.stream for each in node.inputs if not arriving.in_columns(each.stream, node.name)),
        "",
    )
    if node.sink is not None:
        return f"comes {_BY_RECORD}" if single else "comes in columns"
    assert node.computation is not None
    form = forms[node.name]
    if node.name in arriving.joins:
        return "taken in columns"
    if form.plan is None and not isinstance(node.computation.work, DictionarySpec):
        return f"taken {_BY_RECORD}: {form.why}"
    if single:
        state_text = "; state in columns" if _holds(form) else ""
        return f"taken {_BY_RECORD}, as {single} comes{state_text}"
    types = ", types inferred" if isinstance(form.plan, PlansByType) else ""
    return (
        f"taken in columns{types}"
        + (f", state in rows: {form.why}" if form.why and form.plan is not None else "")
        + (f", results in rows: {form.results}" if form.results else "")
    )


def _source(form: SourceForm) -> str:
    if not form.in_columns:
        columns = (
            f"; columns are made for {', '.join(sorted(form.made.consumers))}"
            if form.made is not None
            else ""
        )
        return f"read {_BY_RECORD}: {form.why}{columns}"
    if form.inferred is not None:
        return "read in columns, types inferred: no fields are declared"
    return "read in columns" + (", all fields" if form.whole else "")


def _holds(form: ComputationForm) -> bool:
    return isinstance(form.plan, ColumnPlan) and form.plan.held


class _Arriving:
    """Which streams come in columns. Results of state in columns do, however the records came."""

    def __init__(
        self,
        graph: Graph,
        forms: Mapping[str, ComputationForm],
        sources: Mapping[str, SourceForm],
        joins: Set[str],
    ) -> None:
        self.joins = joins
        self._graph = graph
        self._forms = forms
        self._sources = sources
        self._memo: dict[str, bool] = {}

    def in_columns(self, stream: str, consumer: str) -> bool:
        """Whether a consumer of a stream gets columns."""
        form = self._sources.get(stream)
        made_columns = form.made if form is not None else None
        return (
            made_columns is not None and consumer in made_columns.consumers
        ) or self._come_in_columns(stream)

    def _come_in_columns(self, stream: str) -> bool:
        if stream not in self._memo:
            self._memo[stream] = False  # the answer for a circle
            makers = [node for node in self._graph.nodes.values() if stream in node.outputs]
            self._memo[stream] = bool(makers) and all(
                self._makes_columns(node, stream) for node in makers
            )
        return self._memo[stream]

    def _makes_columns(self, node: Node, stream: str) -> bool:
        if node.stream is not None:
            return self._sources[node.stream.name].in_columns
        if (
            node.computation is None
            or stream == node.computation.late_side
            or stream == DEAD_LETTERS
        ):
            return False
        if node.name in self.joins:
            return True
        if isinstance(node.computation.work, DictionarySpec):
            return all(self._come_in_columns(each.stream) for each in node.inputs)
        if isinstance(self._forms[node.name].plan, StatelessPlans | EnrichPlan):
            return all(self.in_columns(each.stream, node.name) for each in node.inputs)
        if self._forms[node.name].results:
            return False
        # values in rows may be of any types
        if isinstance(plan := self._forms[node.name].plan, PlansByType):
            return plan.held and all(self._come_in_columns(each.stream) for each in node.inputs)
        return (
            _holds(self._forms[node.name])
            and node.computation.stage is not AggregationStage.PARTIAL
        )
