"""The plan of a computation's aggregation, made from its spec, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millwheel.core.aggregates.columns import ColumnAggregate
from millwheel.core.aggregates.functions import column_aggregate, orders_of
from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.key_columns import fields_read, kinds_of_key
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.expressions.columns import condition_over_columns, kind_of_number
from millwheel.core.expressions.declaration import is_three_valued
from millwheel.core.expressions.inner_fields import columns_read, plainly_named
from millwheel.core.expressions.terms import NoColumns
from millwheel.core.lazy_polars import dtype, pl
from millwheel.core.pipeline.keys import INSTANCE
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.windows.windows import OfInput, Sliding, Tumbling, WindowFunction


def typed_plan(
    spec: ComputationSpec,
    window: WindowFunction,
    fields: Mapping[str, str],
    compile_expression: Callable[[str], Any],
    beside: str = "",
) -> ColumnPlan | str:
    """The plan for fields of these types, or why the key, an aggregate or a condition has no column
    form. ``beside`` is a field that every record has, for plans that read none."""
    try:
        kinds = kinds_of_key(spec.inputs[0].key, fields, compile_expression)
        return _plan(spec, window, {**fields, INSTANCE: "int"}, kinds, compile_expression, beside)
    except NoColumns as ex:
        return str(ex)


def fields_used(
    spec: ComputationSpec, window: WindowFunction, compile_expression: Callable[[str], Any]
) -> set[str]:
    """The fields that conditions and aggregates read, and windows that are in their records."""
    texts = [
        spec.condition,
        *(text for part in spec.aggregates for text in (part.condition, part.argument)),
        *(text for part in spec.aggregates for text in orders_of(part)),
    ]
    used = {name for text in texts if text for name in columns_read(compile_expression(text))}
    return used | ({window.start, window.end} if isinstance(window, OfInput) else set())


def _plan(
    spec: ComputationSpec,
    window: WindowFunction,
    fields: Mapping[str, str],
    key_kinds: Mapping[str, str],
    compile_expression: Callable[[str], Any],
    beside: str,
) -> ColumnPlan:
    aggregates = [
        _aggregate(aggregate, f"a{index}", fields, compile_expression)
        for index, aggregate in enumerate(spec.aggregates)
    ]
    key = spec.inputs[0].key
    reads = fields_read(key, compile_expression)
    used = (
        fields_used(spec, window, compile_expression) or {*reads[:1]} or ({beside} & fields.keys())
    )
    if not used:
        raise NoColumns("it reads no field of its records")
    if spec.late_side:  # late records are passed on with all of their fields
        used = {*fields} - {INSTANCE}
    bounds = (window.start, window.end) if isinstance(window, OfInput) else ()
    if unknown := [name for name in bounds if fields.get(name) != "int"]:
        raise NoColumns(f"the field {unknown[0]} of its windows is not known to be int")
    if patterns := sorted(filter(is_pattern, {*key_kinds, *reads, *used})):
        raise NoColumns(
            f"the library of columns takes the name of the field {patterns[0]} for a pattern"
        )
    condition = _condition(spec.condition, fields, compile_expression) if spec.condition else None
    floats = (
        ()
        if spec.stage is AggregationStage.PARTIAL
        else float_sums(spec, fields, compile_expression)
    )
    names = tuple(part.name for part in spec.aggregates)
    if {*key_kinds, "window_start", "window_end"} & set(names):
        raise NoColumns("an aggregate has the name of a field of the key, or of the window")
    return ColumnPlan(
        window=_grouped_by(window),
        names=names,
        aggregates=tuple(aggregates),
        condition=condition,
        kinds=tuple((name, fields.get(name, "")) for name in sorted(used)),
        key_names=tuple(key_kinds),
        key_dtype=dtype_of_key(key_kinds),
        floats=floats,
        steps=window if isinstance(window, Sliding) and window.changes else None,
        lateness_us=spec.firing.allowed_lateness_us,
        drops=spec.late == "drop",
        empties=spec.firing.accumulation == "discarding",
        key_fields=reads,
        shown=key.shown,
        takes_nulls=is_three_valued(compile_expression) and not bounds and not spec.late_side,
    )


def _aggregate(
    spec: AggregateSpec,
    column: str,
    fields: Mapping[str, str],
    compile_expression: Callable[[str], Any],
) -> ColumnAggregate:
    try:
        return column_aggregate(spec, column, fields, compile_expression)
    except NoColumns:
        texts = (spec.argument, spec.condition, *orders_of(spec))
        used = {name for text in texts if text for name in columns_read(compile_expression(text))}
        unknown = sorted(used - fields.keys())
        why = (
            f"its field {plainly_named(unknown[0])} is not declared"
            if unknown
            else f"{spec.function} has none for what it is given"
        )
        raise NoColumns(f"the aggregate {spec.name} has no column form: {why}") from None


def _condition(
    text: str, fields: Mapping[str, str], compile_expression: Callable[[str], Any]
) -> pl.Expr:
    try:
        return condition_over_columns(
            (compiled := compile_expression(text)).tree, fields, compiled.dialect
        )
    except NoColumns:
        raise NoColumns(
            "its condition has no column form, or one of its fields is not declared"
        ) from None


def _grouped_by(window: WindowFunction) -> WindowFunction:
    """The windows that a bundle is grouped by. Key windows take the records of one step of their
    slide together."""
    if isinstance(window, Sliding) and window.changes:
        return Tumbling(window.every, window.offset)
    return window


def float_sums(
    spec: ComputationSpec, fields: Mapping[str, str], compile_expression: Callable[[str], Any]
) -> tuple[str, ...]:
    """The results that are floats even for an empty sum."""
    sums = (part for part in spec.aggregates if part.function == "sum")
    return tuple(
        part.name
        for part in sums
        if kind_of_number(part.argument, fields, compile_expression) == "float"
    )


def dtype_of_key(kinds: Mapping[str, str]) -> Any:
    """The type of a column of keys whose parts have these types."""
    types = {name: dtype(kind) for name, kind in kinds.items()}
    return pl.Struct(types) if len(types) > 1 else next(iter(types.values()))
