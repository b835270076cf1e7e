"""count_distinct: the exact number of different values. In columns each group has a list of them,
and in a change log each of its segments has a list of the values that are new there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from millwheel.core.aggregates.base import VALUES, AggregateFunction, Aggregator, check_fits, wrong
from millwheel.core.aggregates.columns import Argument, ColumnAggregate, Inexact, Listed
from millwheel.core.aggregates.families.distinct_values import Distinct
from millwheel.core.lazy_polars import pl

_MOST_LISTED = 1 << 17
"""A larger set stays in rows, as bitmaps, an eighth of its size in columns: 4 MB."""


class CountDistinct(Aggregator[dict[Any, int]]):
    """The exact number of different values. The accumulator has each value with the number of its
    records."""

    subtracts = True
    ordered = False

    def growing(self) -> CountGrowing:
        return CountGrowing()

    def check(self, value: Any, name: str) -> Any:
        kind = type(value)
        if kind is list:
            value, kind = _tuples(value), tuple
        if kind in (str, int, bytes, tuple) or (kind is float and not math.isnan(value)):
            return check_fits("count_distinct", name, value)
        raise wrong("count_distinct", name, value, "text, a number, bytes or a list of them")

    def create(self) -> dict[Any, int]:
        return {}

    def add(self, acc: dict[Any, int], value: Any, timestamp: int) -> dict[Any, int]:
        acc[value] = acc.get(value, 0) + 1
        return acc

    def add_many(
        self, acc: dict[Any, int], values: Sequence[Any], timestamps: Sequence[int]
    ) -> dict[Any, int]:
        return self.merge(acc, Counter(values))

    def merge(self, acc: dict[Any, int], other: dict[Any, int]) -> dict[Any, int]:
        for value, count in other.items():
            acc[value] = acc.get(value, 0) + count
        return acc

    def subtract(self, acc: dict[Any, int], value: Any, timestamp: int) -> dict[Any, int]:
        count = acc.get(value, 0) - 1
        if count > 0:
            acc[value] = count
        else:
            acc.pop(value, None)
        return acc

    def result(self, acc: dict[Any, int]) -> int:
        return len(acc)


class CountGrowing(Aggregator[Distinct]):
    """:class:`CountDistinct` where no record is ever taken back: the values alone, whole numbers in
    bitmaps."""

    ordered = False
    check = CountDistinct.check

    def create(self) -> Distinct:
        return Distinct()

    def add(self, acc: Distinct, value: Any, timestamp: int) -> Distinct:
        acc = Distinct.of(acc)
        acc.add(value)
        return acc

    def add_many(self, acc: Distinct, values: Sequence[Any], timestamps: Sequence[int]) -> Distinct:
        acc = Distinct.of(acc)
        acc.update(values)
        return acc

    def merge(self, acc: Distinct, other: Distinct) -> Distinct:
        acc = Distinct.of(acc)
        acc.merge(Distinct.of(other))
        return acc

    def running(self, acc: Distinct, others: Sequence[Distinct]) -> tuple[Distinct, list[Any]]:
        acc = Distinct.of(acc)
        return acc, list(acc.merge_each([Distinct.of(other) for other in others]))

    def result(self, acc: Distinct) -> int:
        return len(Distinct.of(acc))


def _tuples(values: list[Any]) -> tuple[Any, ...]:
    return tuple(_tuples(value) if type(value) is list else value for value in values)


# --- in columns -----------------------------------------------------------------------------------


class Distincts(Listed):
    """count_distinct: each value once."""

    def __init__(self, column: str, argument: Argument, aggregator: CountDistinct) -> None:
        super().__init__(column, argument)

    def _kept(self, values: pl.Expr) -> pl.Expr:
        return values.unique(maintain_order=True)

    def result(self, groups: pl.DataFrame) -> pl.Series:
        lengths: pl.Series = groups[self._column].list.len().cast(pl.Int64)
        return lengths

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        acc = Distinct()
        if values := row[self._column]:
            acc.update(values)
        return acc

    def from_acc(self, acc: Any) -> list[Any]:
        return [[self._typed(value) for value in Distinct.of(acc).values()]]

    def lasting(self) -> ColumnAggregate:
        return LastingDistincts(self._column, self._argument)

    def _typed(self, value: Any) -> Any:
        """A value as the column has it. In a set 1 and 1.0 are one value. Raises Inexact for a
        value of another type."""
        if type(value) is int and self._type is float and float(value) == value:
            return float(value)
        if type(value) is not self._type or (type(value) is int and not -(2**63) <= value < 2**63):
            raise Inexact
        return value


class LastingDistincts(Distincts):
    """The values of a group that are new in a segment, and the number of its values in that and all
    older segments. :mod:`millwheel.core.columns.state.growing_groups`, which has the segments,
    fills in the counts of a bundle."""

    grows = False

    def __init__(self, column: str, argument: Argument) -> None:
        Listed.__init__(self, column, argument)
        self.listed = column
        self.counted = f"{column}n"
        self.dtypes = {**self.dtypes, self.counted: pl.Int64}

    def prepared(self) -> list[pl.Expr]:
        return [*super().prepared(), pl.lit(0, pl.Int64).alias(self.counted)]

    def grouped(self) -> list[pl.Expr]:
        return [self._kept(pl.col(self._column).drop_nulls()), pl.col(self.counted).max()]

    def merged(self) -> list[pl.Expr]:
        return [pl.col(self._column).explode().drop_nulls(), pl.col(self.counted).max()]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        return groups[self.counted]

    def outgrown(self) -> pl.Expr:
        """Which groups have too many values for columns."""
        return pl.col(self.counted) > _MOST_LISTED

    def from_acc(self, acc: Any) -> list[Any]:
        if len(acc) > _MOST_LISTED:
            raise Inexact
        return [*super().from_acc(acc), 0]


FUNCTIONS = {
    "count_distinct": AggregateFunction(
        lambda options: CountDistinct(),
        (),
        Distincts,
        VALUES,
        gives="different values, exactly",
        keeps="all different values; whole numbers [as bitmaps](#exact-distinct-counts)",
    )
}
