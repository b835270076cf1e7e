"""From the aggregates of a spec to an aggregation: functions looked up, expressions compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from millwheel.core.aggregates.aggregation import (
    Evaluate,
    FinalAggregation,
    Named,
    NamedAggregation,
    PartialAggregation,
)
from millwheel.core.aggregates.base import Aggregator
from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.expressions.declaration import is_three_valued
from millwheel.core.pipeline.spec import AggregationStage
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.errors import RecordError

Compile = Callable[[str], Any]
"""An expression's text -> an object with ``evaluate(value)``. Raises ValueError for an invalid
text."""
Load = Callable[[str], Any]
"""``module:name`` -> the object."""


def field_reader(name: str, optional: bool = False) -> Evaluate:
    """A function that reads one field of a dict or one attribute of an object. A missing one raises
    RecordError, or is None if ``optional``."""

    def read(value: Any) -> Any:
        if type(value) is dict:
            if name in value:
                return value[name]
        elif hasattr(value, name):
            return getattr(value, name)
        if optional:
            return None
        there = (
            ", ".join(sorted(map(str, value))) if isinstance(value, dict) else type(value).__name__
        )
        raise RecordError(f"the record has no field {name!r}; it has: {there or 'no fields'}")

    return read


def compile_aggregation(
    specs: Sequence[AggregateSpec],
    compile_expression: Compile,
    load: Load | None = None,
    condition: str = "",
    stage: AggregationStage = AggregationStage.WHOLE,
    takes_retractions: bool = False,
) -> NamedAggregation:
    """The aggregation that the YAML describes. Raises ValueError, with the fix, for invalid
    settings."""
    parts = [_named(spec, compile_expression, load) for spec in specs]
    if not takes_retractions:
        parts = [replace(part, aggregator=part.aggregator.growing()) for part in parts]
    if stage is AggregationStage.FINAL:
        return FinalAggregation(parts)
    kind = PartialAggregation if stage is AggregationStage.PARTIAL else NamedAggregation
    return kind(parts, compile_expression(condition).evaluate if condition else None)


def _named(spec: AggregateSpec, compile_expression: Compile, load: Load | None) -> Named:
    aggregator = make_aggregator(spec.function, spec.options, load)
    if aggregator.of_rows:
        return _of_rows(spec, aggregator, compile_expression)
    if aggregator.needs_argument and not spec.argument:
        raise ValueError(
            f"{spec.name}: {spec.function} needs a field or expression; write {{{spec.function}:"
            " size}"
        )
    evaluate = _argument(spec.argument, not aggregator.needs_argument, compile_expression)
    condition = compile_expression(spec.condition).evaluate if spec.condition else None
    skips = bool(spec.argument) and is_three_valued(compile_expression)
    return Named(spec.name, aggregator, spec.argument, evaluate, condition, skips)


def _of_rows(
    spec: AggregateSpec, aggregator: Aggregator[Any], compile_expression: Compile
) -> Named:
    reads = [value_reader(text, False, compile_expression) for text in aggregator.orders]
    condition = compile_expression(spec.condition).evaluate if spec.condition else None

    def evaluate(record: Any) -> Any:
        return [[read(record) for read in reads], record]

    # Not the orders alone: aggregates of the field n share its value by this name.
    reading = f"records by {', '.join(aggregator.orders)}"
    return Named(spec.name, aggregator, reading, evaluate, condition)


def _argument(text: str, optional: bool, compile_expression: Compile) -> Evaluate | None:
    return value_reader(text, optional, compile_expression) if text else None


def value_reader(text: str, optional: bool, compile_expression: Compile) -> Evaluate:
    """A function that reads a field or computes an expression. A missing field raises RecordError,
    or is None if ``optional``."""
    if text.isidentifier():
        return field_reader(text, optional)
    evaluate: Evaluate = compile_expression(text).evaluate
    return evaluate
