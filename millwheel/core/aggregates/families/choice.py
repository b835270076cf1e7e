"""min, max, first, last, top_k, collect: aggregators that choose or keep values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from millwheel.core.aggregates.base import VALUES, AggregateFunction, Aggregator, check_fits, wrong
from millwheel.core.aggregates.columns import (
    Argument,
    ColumnAggregate,
    Inexact,
    Listed,
    OverRanges,
    without_signed_zero,
)
from millwheel.core.lazy_polars import dtype, pl


def check_ordered(function: str, value: Any, name: str) -> Any:
    """A value that has a place in an order. RecordError for any other."""
    kind = type(value)
    if kind is str or kind is int or (kind is float and not math.isnan(value)):
        return check_fits(function, name, value)
    raise wrong(function, name, value, "a number or text")


def rank(value: Any) -> tuple[int, Any, bool]:
    """Numbers before text, so that a field of mixed types has an order, and 1 before 1.0, so that
    there is only one order."""
    return (1, value, False) if isinstance(value, str) else (0, value, type(value) is float)


class Extreme(Aggregator[list[Any]]):
    """min or max: a list of the one value, empty for no records (result None)."""

    ordered = False

    def __init__(self, function: str) -> None:
        self._function = function
        self._largest = function == "max"

    def check(self, value: Any, name: str) -> Any:
        checked = check_ordered(self._function, value, name)
        # -0.0 and 0.0 are equal: the order would decide
        return checked + 0.0 if type(checked) is float else checked

    def create(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        if not acc or (rank(value) > rank(acc[0]) if self._largest else rank(value) < rank(acc[0])):
            return [value]
        return acc

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        return self.add(acc, other[0], 0) if other else acc

    def result(self, acc: list[Any]) -> Any:
        return acc[0] if acc else None


class ByTime(Aggregator[list[Any]]):
    """first or last by timestamp: [timestamp, value]. Among equal timestamps arrival decides."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._last = function == "last"

    def check(self, value: Any, name: str) -> Any:
        return check_fits(self._function, name, value)

    def create(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        if not acc or (timestamp >= acc[0] if self._last else timestamp < acc[0]):
            return [timestamp, value]
        return acc

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        return self.add(acc, other[1], other[0]) if other else acc

    def result(self, acc: list[Any]) -> Any:
        return acc[1] if acc else None


class TopK(Aggregator[list[Any]]):
    """The ``k`` largest values, largest first: a sorted list of [rank key, value]."""

    ordered = False

    def __init__(self, k: int) -> None:
        self.k = k

    def check(self, value: Any, name: str) -> Any:
        checked = check_ordered("top_k", value, name)
        # -0.0 and 0.0 are equal: the order would decide
        return checked + 0.0 if type(checked) is float else checked

    def create(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        return self._cut([*acc, value])

    def add_many(
        self, acc: list[Any], values: Sequence[Any], timestamps: Sequence[int]
    ) -> list[Any]:
        return self._cut([*acc, *values])

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        return self._cut([*acc, *other])

    def result(self, acc: list[Any]) -> list[Any]:
        return list(acc)

    def _cut(self, values: list[Any]) -> list[Any]:
        return sorted(values, key=rank, reverse=True)[: self.k]


class Collect(Aggregator[list[Any]]):
    """All values, in order of arrival."""

    subtracts = True

    def check(self, value: Any, name: str) -> Any:
        return check_fits("collect", name, value)

    def create(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        acc.append(value)
        return acc

    def add_many(
        self, acc: list[Any], values: Sequence[Any], timestamps: Sequence[int]
    ) -> list[Any]:
        acc.extend(values)
        return acc

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        acc.extend(other)
        return acc

    def subtract(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        if value in acc:
            acc.remove(value)
        return acc

    def result(self, acc: list[Any]) -> list[Any]:
        return list(acc)


# --- in columns -----------------------------------------------------------------------------------


class Extremal(ColumnAggregate):
    """min or max; null when no record counted."""

    def __init__(self, column: str, argument: Argument, largest: bool) -> None:
        super().__init__(column, without_signed_zero(argument))
        self._largest = largest
        self._type: type = {"int": int, "float": float, "str": str}[argument.kind]
        self.over_ranges = OverRanges.LARGEST if largest else OverRanges.SMALLEST
        self.dtypes = {column: dtype(argument.kind)}

    def prepared(self) -> list[pl.Expr]:
        return [self._argument.or_null().alias(self._column)]

    def merged(self) -> list[pl.Expr]:
        column = pl.col(self._column)
        return [column.max() if self._largest else column.min()]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        return groups[self._column]

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        value = row[self._column]
        return [] if value is None else [value]

    def from_acc(self, acc: Any) -> list[Any]:
        if acc and type(acc[0]) is not self._type:
            raise Inexact  # a sum beyond 64 bits is a float
        return [acc[0] if acc else None]


class Largest(Listed):
    """top_k: the largest values, largest first."""

    def __init__(self, column: str, argument: Argument, aggregator: TopK) -> None:
        super().__init__(column, argument)
        self._k = aggregator.k

    def _kept(self, values: pl.Expr) -> pl.Expr:
        return values.sort(descending=True).head(self._k)

    def result(self, groups: pl.DataFrame) -> pl.Series:
        raise Inexact  # columns of results hold no lists

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        return row[self._column]

    def from_acc(self, acc: Any) -> list[Any]:
        if any(type(value) is not self._type for value in acc):
            raise Inexact
        return [acc]


def _top_k(options: Mapping[str, Any]) -> Aggregator[Any]:
    k = options.get("k")
    if type(k) is not int or k < 1:
        raise ValueError(
            f"top_k needs `k`, a whole number of at least 1, not {k!r}; write {{top_k: size, k:"
            " 10}"
        )
    return TopK(k)


def _extreme(function: str) -> AggregateFunction:
    def columns(column: str, argument: Argument, aggregator: Extreme) -> ColumnAggregate:
        return Extremal(column, argument, largest=function == "max")

    return AggregateFunction(
        lambda options: Extreme(function),
        (),
        columns,
        VALUES,
        gives="of numbers or text",
        keeps="one value",
    )


def _by_time(function: str, which: str) -> AggregateFunction:
    return AggregateFunction(
        lambda options: ByTime(function),
        gives=f"the value of the {which} record",
        keeps="one value",
    )


FUNCTIONS = {
    "min": _extreme("min"),
    "max": _extreme("max"),
    "first": _by_time("first", "earliest"),
    "last": _by_time("last", "latest"),
    "top_k": AggregateFunction(
        _top_k,
        ("k",),
        Largest,
        VALUES,
        gives="the largest values; `k: 10`",
        keeps="k values",
        example={"k": 2},
    ),
    "collect": AggregateFunction(
        lambda options: Collect(),
        gives=(
            "all values, in order of arrival (with `cumulative` and `emit: changes`: grouped by"
            " step, each group in order of arrival)"
        ),
        keeps="all values",
    ),
}
