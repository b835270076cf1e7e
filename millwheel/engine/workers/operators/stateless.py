"""Runs steps and branches on columns: a bundle is filtered and projected as a whole, and no record
becomes an object.

A record whose result columns cannot compute (from a null, or a product beyond 64 bits) goes by
rows. Where such records make nothing but dead letters, only they do. Otherwise the whole bundle
does: productions in rows come behind those in columns, and those of a key keep the order of its
records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from millwheel.api import Computation
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.stateless.plans import StatelessPlans
from millwheel.core.columns.stateless.stages import Passed
from millwheel.core.expressions.language import BUILT_IN, Language
from millwheel.core.model.limits import Limits
from millwheel.core.order.labels import NO_USE, LabelUse
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.steps import compile_branches, compile_steps
from millwheel.core.pipeline.work import BranchesSpec, StepsSpec
from millwheel.engine.workers.boundaries import ColumnBoundary, passes
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.callbacks import CallbackOperator, Decode, Together
from millwheel.engine.workers.operators.record_computations import UNMATCHED
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError


class StatelessOperator(CallbackOperator):
    """The operator of steps or branches with a column form: a :class:`CallbackOperator` for
    everything that columns cannot take."""

    def __init__(
        self,
        spec: ComputationSpec,
        pipeline: str,
        instance: Computation,
        overlay: Overlay,
        decode: Decode,
        cache_entries: int,
        limits: Limits,
        plans: StatelessPlans | None,
        few: int = 0,
        language: Language = BUILT_IN,
        labels: LabelUse = NO_USE,
    ) -> None:
        """Bundles of fewer than ``few`` records go by rows, all without ``plans``. ``language`` is
        that of the expressions."""
        super().__init__(spec, pipeline, instance, overlay, decode, cache_entries, limits, labels)
        self._spec = spec
        self._plans = plans
        self._few = few
        self._language = language
        self._boundary = ColumnBoundary(spec.name)

    def run(self, bundle: Bundle) -> None:
        arrivals = bundle.arrivals
        passed = self._passed(bundle)
        if passed is None:
            super().run(bundle)
            return
        for_rows = [
            replace(arrival, batch=_picked(arrival.batch, each))
            for arrival, each in zip(arrivals, passed, strict=True)
            if len(each.for_rows)
        ]
        if for_rows:
            bundle.arrivals = for_rows
            super().run(bundle)
            bundle.arrivals = arrivals
        for each in passed:
            for part in each.parts:
                bundle.outputs.produce_columns(part)
        if unmatched := sum(each.unmatched for each in passed):
            bundle.outputs.counted.append((UNMATCHED, unmatched))

    def _passed(self, bundle: Bundle) -> list[Passed] | None:
        """The results of each arrival; None where the bundle goes by rows."""
        batches = [arrival.batch for arrival in bundle.arrivals]
        avoided = self._attempts.avoided
        if (
            self._plans is None
            or bundle.traced is not None
            or avoided.lone
            or avoided.hangs
            or avoided.apart
            or sum(map(len, batches)) < max(self._few, 1)
        ):
            return None
        # An expression may take for ever on a text. Then the next owner looks at each record.
        self._at = Together()
        self._context.calls += sum(map(len, batches))
        try:
            return self._in_columns(batches, bundle)
        finally:
            self._at = None

    def _in_columns(self, batches: Sequence[AnyBatch], bundle: Bundle) -> list[Passed] | None:
        results = []
        with suppress(Inexact), self._boundary.inside(bundle.count):
            for batch in batches:
                passed = self._become(batch) if isinstance(batch, ColumnBatch) else None
                if passed is None:
                    return None
                results.append(passed)
            return None if self._any_becomes_something(bundle.arrivals, results) else results
        return None

    def _become(self, batch: ColumnBatch) -> Passed | None:
        """The results of a batch; None where it goes by rows."""
        plan = None if self._plans is None else self._plans.of(batch)
        return None if plan is None else plan.passed(batch)

    @cached_property
    def _becomes(self) -> Callable[[Any], bool]:
        return _results_of(self._spec, self._language)

    def _any_becomes_something(self, arrivals: Sequence[Arrival], passed: Sequence[Passed]) -> bool:
        """Whether a record that does not fit has a result besides a dead letter."""
        return any(
            self._becomes(value)
            for arrival, each in zip(arrivals, passed, strict=True)
            if len(each.for_rows)
            for value in _picked(arrival.batch, each).rows().values
        )


def _picked(batch: Any, passed: Passed) -> ColumnBatch:
    """The records that do not fit."""
    mask = np.zeros(len(batch), np.bool_)
    mask[passed.for_rows] = True
    picked: ColumnBatch = batch.where(mask)
    return picked


def _results_of(spec: ComputationSpec, language: Language) -> Callable[[Any], bool]:
    """Whether a record becomes anything, by its value. Expressions are asked again for the same
    answer."""
    run: Callable[[Any], Any] = (
        compile_branches(spec.work.branches, spec.work.match_all, language)
        if isinstance(spec.work, BranchesSpec)
        else compile_steps(spec.work_as(StepsSpec).steps, _no_function, language)
    )

    def becomes(value: Any) -> bool:
        try:
            return any(True for _ in run(value))
        except BaseException as ex:  # it will be a dead letter
            if passes(ex):
                raise
            return False

    return becomes


def _no_function(name: str) -> Any:
    raise InvariantError(f"{name} has no column form")
