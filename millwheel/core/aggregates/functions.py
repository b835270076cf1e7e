"""The aggregate functions by their names in YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millwheel.core.aggregates.base import VALUES, AggregateFunction, Aggregator
from millwheel.core.aggregates.candidates import RowCandidates
from millwheel.core.aggregates.columns import (
    Argument,
    ColumnAggregate,
    OverRanges,
    calculated,
    not_null,
)
from millwheel.core.aggregates.families import (
    approx_distinct,
    choice,
    distinct,
    numeric,
    quantiles,
    rows,
    variance,
)
from millwheel.core.aggregates.own import OwnAggregator
from millwheel.core.expressions.columns import condition_over_columns, term_over_columns
from millwheel.core.expressions.declaration import is_three_valued
from millwheel.core.expressions.inner_fields import columns_read
from millwheel.core.expressions.terms import NoColumns, Term
from millwheel.core.lazy_polars import pl
from millwheel.core.pipeline.work import AggregateSpec

_FAMILIES = (numeric, variance, choice, distinct, approx_distinct, quantiles, rows)
FUNCTIONS: Mapping[str, AggregateFunction] = {
    name: function for family in _FAMILIES for name, function in family.FUNCTIONS.items()
}


def make_aggregator(
    function: str,
    options: Mapping[str, Any] | None = None,
    load: Callable[[str], Any] | None = None,
) -> Aggregator[Any]:
    """A built-in aggregator, or the user's own when ``function`` is ``module:Class``, made with
    ``options``.

    Raises ValueError, with the possible names or settings, for an unknown function or option.
    """
    settings = options or {}
    if ":" in function:
        return _own(function, settings, load)
    entry = FUNCTIONS.get(function)
    if entry is None:
        raise ValueError(
            f"unknown aggregate function {function!r}; there are {', '.join(sorted(FUNCTIONS))}, "
            "or a class of your own as module:Class"
        )
    for option in sorted(set(settings) - set(entry.options)):
        has = f"it has {', '.join(entry.options)}" if entry.options else "it has none"
        raise ValueError(f"{function} has no option {option!r}; {has}")
    return entry.make(settings)


def orders_of(spec: AggregateSpec) -> tuple[str, ...]:
    """The expressions by which an aggregate of whole records orders them."""
    return FUNCTIONS[spec.function].make(spec.options).orders if keeps_records(spec) else ()


def keeps_records(spec: AggregateSpec) -> bool:
    """Whether an aggregate is one of whole records."""
    function = FUNCTIONS.get(spec.function)
    return function is not None and function.of_rows


def _own(
    function: str, options: Mapping[str, Any], load: Callable[[str], Any] | None
) -> Aggregator[Any]:
    if load is None:
        raise ValueError(f"{function!r} names a class of your own, which cannot be loaded here")
    aggregator = load(function)(**options)
    if isinstance(aggregator, Aggregator):
        return OwnAggregator(aggregator)
    raise ValueError(f"{function!r} is not an Aggregator; derive it from millwheel.Aggregator")


def column_aggregate(
    spec: AggregateSpec,
    column: str,
    fields: Mapping[str, str],
    compile_expression: Callable[[str], Any],
) -> ColumnAggregate:
    """The column form of an aggregate over declared fields. Raises NoColumns where there is
    none."""
    condition = (
        condition_over_columns(
            (compiled := compile_expression(spec.condition)).tree, fields, compiled.dialect
        )
        if spec.condition
        else None
    )
    function = FUNCTIONS.get(spec.function)
    if function is None:
        raise NoColumns
    aggregator = function.make(spec.options)
    if isinstance(aggregator, rows.ChosenRows):
        terms = [_order(text, fields, compile_expression) for text in aggregator.orders]
        reads = [
            name for text in aggregator.orders for name in columns_read(compile_expression(text))
        ]
        return RowCandidates(column, aggregator, terms, condition, reads)
    if function.columns is None:
        raise NoColumns
    argument = _argument(spec, aggregator, fields, condition, compile_expression)
    if argument.kind not in function.kinds:
        raise NoColumns
    if spec.argument and is_three_valued(compile_expression):
        argument = not_null(argument)
    return function.columns(column, argument, aggregator)


def over_ranges(spec: AggregateSpec) -> OverRanges | None:
    """The way in which an aggregate over ranges of records follows from its parts; None where it
    has no column form."""
    function = FUNCTIONS.get(spec.function)
    if function is None or function.columns is None:
        return None
    argument = Argument(pl.lit(1), "int", None)
    return function.columns("", argument, function.make(spec.options)).over_ranges


def _order(text: str, fields: Mapping[str, str], compile_expression: Callable[[str], Any]) -> Term:
    compiled = compile_expression(text)
    term = term_over_columns(compiled.tree, fields, compiled.dialect)
    if term.kind not in VALUES:
        raise NoColumns
    return term


def _argument(
    spec: AggregateSpec,
    aggregator: Aggregator[Any],
    fields: Mapping[str, str],
    condition: pl.Expr | None,
    compile_expression: Callable[[str], Any],
) -> Argument:
    if spec.argument in fields:
        return Argument(pl.col(spec.argument), fields[spec.argument], condition)
    if not spec.argument:
        if aggregator.needs_argument:  # the whole record
            raise NoColumns
        return Argument(pl.lit(1), "int", condition)
    compiled = compile_expression(spec.argument)
    return calculated(compiled.tree, fields, condition, compiled.dialect)
