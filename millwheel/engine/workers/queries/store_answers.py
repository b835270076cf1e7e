"""Answers a question from a read-only store, as the operator that wrote it would, without running
that operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millwheel.adapters.ports import StoreView
from millwheel.connect.own_functions import language_of
from millwheel.connect.python_objects import load_object
from millwheel.core.columns.forms.computations import computation_form
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.change_logs import accumulators_of
from millwheel.core.columns.state.windows import results_of, windows_of_key
from millwheel.core.columns.stateless.plans import StatelessPlans
from millwheel.core.machines.specs import machine_from_spec
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import AggregationSpec, CallbackSpec, SlicesSpec
from millwheel.core.rows.versions import EnrichPlan
from millwheel.core.windows.windows import GLOBAL_WINDOW, Window
from millwheel.engine.queries.model import Finding, Query, QueryError
from millwheel.engine.queries.slices import SliceAnswers
from millwheel.engine.workers.operators.slices.computation import aggregation_of
from millwheel.engine.workers.operators.windows.outputs import finisher
from millwheel.engine.workers.state.column_segments import open_groups
from millwheel.engine.workers.state.keyed_state import callback_state
from millwheel.engine.workers.state.window_results import WindowAnswers

Answers = Callable[[Query, StoreView, int], Finding]
"""(question, store, watermark of its input) -> the finding. Raises QueryError."""


class StoreAnswers:
    """Answers for all computations of a pipeline. The code for one is built with its first
    question."""

    def __init__(self, spec: PipelineSpec, load: Callable[[str, str], Any] = load_object) -> None:
        self._spec = spec
        self._load = load
        self._made: dict[str, Answers] = {}

    def answer(self, query: Query, store: StoreView, watermark_us: int) -> Finding:
        """See :meth:`millwheel.engine.workers.bundle.operator.Operator.answer`."""
        answers = self._made.get(query.computation)
        if answers is None:
            answers = self._made[query.computation] = self._make(query.computation)
        return answers(query, store, watermark_us)

    def _make(self, name: str) -> Answers:
        spec = next((each for each in self._spec.computations if each.name == name), None)
        match None if spec is None else spec.work:
            case SlicesSpec() as work if spec is not None:
                return SliceAnswers.of(work, aggregation_of(spec, self._spec)).answer
            case CallbackSpec() as work:
                return self._of_callback(work)
            case AggregationSpec(aggregates=aggregates) if spec is not None and aggregates:
                return self._of_windows(spec)
        return _nothing

    def _of_callback(self, called: CallbackSpec) -> Answers:
        kind = self._load(called.callback, self._spec.folder)

        def answer(query: Query, store: StoreView, watermark_us: int) -> Finding:
            states = callback_state(kind, store, query.key, watermark_us)
            return Finding(query.chosen(states)) if states else _nothing(query, store, watermark_us)

        return answer

    def _of_windows(self, spec: ComputationSpec) -> Answers:
        load: Callable[[str], Any] = lambda name: self._load(name, self._spec.folder)  # noqa: E731
        back = takes_retractions(spec, self._spec)
        compile_text = language_of(self._spec).compile
        machine = machine_from_spec(spec, compile_text, load, back)
        plan = computation_form(spec, self._spec, load, compile_text).plan
        if plan is None or isinstance(plan, StatelessPlans | EnrichPlan):
            rows = WindowAnswers(spec, machine, finisher(spec, self._spec))
            return lambda query, store, watermark_us: rows.answer(query, [], store, watermark_us)
        finish = plan.typed if isinstance(plan, ColumnPlan) else finisher(spec, self._spec)
        columns, aggregation = (
            WindowAnswers(spec, machine, finish),
            aggregation_of(spec, self._spec),
        )

        def answer(query: Query, store: StoreView, watermark_us: int) -> Finding:
            more: list[tuple[Window, Any]] = []
            for types, groups in open_groups(store, watermark_us).items():
                typed = plan if isinstance(plan, ColumnPlan) else plan.plan(dict(types))
                assert typed is not None
                if typed.versions:
                    accumulators = accumulators_of(typed, groups, query.key, watermark_us)
                    more += [(GLOBAL_WINDOW, aggregation.result(acc)) for acc in accumulators]
                    continue
                more += results_of(
                    typed, windows_of_key(typed, groups, query.key), aggregation, watermark_us
                )
            return columns.answer(query, more, store, watermark_us)

        return answer


def _nothing(query: Query, store: StoreView, watermark_us: int) -> Finding:
    raise QueryError("not_asked", f"{query.indicator} cannot be asked of a standby")
