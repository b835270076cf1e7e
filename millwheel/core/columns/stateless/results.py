"""The column form of the fields (``then``) and the condition (``having``) over the results of
windows, for all results of a bundle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.results import shown_by, shows_each
from millwheel.core.columns.batch import ColumnBatch, Int64s
from millwheel.core.columns.stateless.plans import result_plan, why_never
from millwheel.core.columns.stateless.stages import Passed, StatelessPlan
from millwheel.core.expressions.inner_fields import kind_with_inner
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import AggregationSpec
from millwheel.errors import RecordError

Compile = Callable[[str], Any]


class ResultColumns:
    """The plans for the results of a computation, by the types of their fields."""

    def __init__(self, spec: ComputationSpec, compile_expression: Compile) -> None:
        self._spec = spec
        self._compile = compile_expression
        self._one_by_one = shown_by(spec, compile_expression) if shows_each(spec) else None
        self._plans: dict[tuple[tuple[str, str], ...], StatelessPlan | None] = {}

    def shown(self, results: ColumnBatch) -> tuple[list[ColumnBatch], Int64s]:
        """Results as each stream gets them, and the indexes of those that become dead letters.
        Raises Inexact where each is processed alone: the results of a key are in the order of their
        windows, in columns and in rows."""
        if self._one_by_one is None:
            none = np.array([], np.int64)
            return [results.named(stream) for stream in self._spec.outputs], none
        passed = self.passed(results)
        if passed is None:
            raise Inexact
        if any(map(self._is_shown, results.frame[passed.for_rows].iter_rows(named=True))):
            raise Inexact
        return passed.parts, passed.for_rows

    def passed(self, results: ColumnBatch) -> Passed | None:
        """The emitted results; None where they have no column form."""
        schema = results.frame.schema
        types = tuple((name, kind_with_inner(kind)) for name, kind in schema.items())
        if types not in self._plans:
            self._plans[types] = result_plan(self._spec, dict(types), self._compile)
        plan = self._plans[types]
        return None if plan is None else plan.passed(results)

    def _is_shown(self, row: dict[str, Any]) -> bool:
        """Whether a result becomes anything but a dead letter."""
        assert self._one_by_one is not None
        try:
            return self._one_by_one(row) is not None
        except RecordError:
            return False


def why_results_in_rows(spec: ComputationSpec, compile_expression: Compile) -> str:
    """Why results of any types are processed one by one, as a phrase; "" where they may not be."""
    work = spec.work
    if not isinstance(work, AggregationSpec):
        return ""
    return why_never([work.having], list(work.then.values()), compile_expression)
