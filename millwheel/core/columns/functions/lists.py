"""count_distinct and top_k in columns: each group has a list of values, without any that make no difference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from millwheel.core.aggregates.base import Aggregator
from millwheel.core.aggregates.distinct import Distinct
from millwheel.core.columns.arguments import Argument, without_signed_zero
from millwheel.core.columns.fixed_sums import Unfit
from millwheel.core.columns.lazy_polars import dtype, pl

_TYPES: Mapping[str, type] = {"int": int, "float": float, "str": str}


class _Listed(ABC):
    """A list of values for each group."""

    grows = True

    def __init__(self, column: str, argument: Argument) -> None:
        self._column = column
        self._argument = without_signed_zero(argument)
        self.dtypes: dict[str, Any] = {column: pl.List(dtype(argument.kind))}

    def staged(self) -> list[pl.Expr]:
        return []

    def prepared(self) -> list[pl.Expr]:
        return [self._argument.or_null().alias(self._column)]

    def grouped(self) -> list[pl.Expr]:
        return [self._kept(pl.col(self._column).drop_nulls())]

    def merged(self) -> list[pl.Expr]:
        return [self._kept(pl.col(self._column).explode().drop_nulls())]

    @abstractmethod
    def _kept(self, values: pl.Expr) -> pl.Expr:
        """The values of a group that make a difference."""

    def unfit(self) -> list[pl.Expr]:
        return self._argument.unfit()


class Distincts(_Listed):
    """count_distinct: each value once."""

    def __init__(self, column: str, argument: Argument, aggregator: Aggregator[Any]) -> None:
        super().__init__(column, argument)
        self._aggregator = aggregator
        self._type = _TYPES[argument.kind]

    def _kept(self, values: pl.Expr) -> pl.Expr:
        return values.unique(maintain_order=True)

    def result(self, groups: pl.DataFrame) -> pl.Series:
        lengths: pl.Series = groups[self._column].list.len().cast(pl.Int64)
        return lengths

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        values = row[self._column]
        acc = self._aggregator.create()
        return self._aggregator.add_many(acc, values, [0] * len(values)) if values else acc

    def from_acc(self, acc: Any) -> list[Any]:
        return [[self._typed(value) for value in Distinct.of(acc).values()]]

    def _typed(self, value: Any) -> Any:
        """A value as the column has it. A set does not tell 1 from 1.0. Unfit when it is of another type."""
        if type(value) is int and self._type is float and float(value) == value:
            return float(value)
        if type(value) is not self._type or (type(value) is int and not -(2**63) <= value < 2**63):
            raise Unfit
        return value


class Largest(_Listed):
    """top_k: the largest values, largest first."""

    def __init__(self, column: str, argument: Argument, k: int) -> None:
        super().__init__(column, argument)
        self._k = k
        self._type = _TYPES[argument.kind]

    def _kept(self, values: pl.Expr) -> pl.Expr:
        return values.sort(descending=True).head(self._k)

    def result(self, groups: pl.DataFrame) -> pl.Series:
        raise Unfit  # columns of results hold no lists

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        return row[self._column]

    def from_acc(self, acc: Any) -> list[Any]:
        if any(type(value) is not self._type for value in acc):
            raise Unfit
        return [acc]
