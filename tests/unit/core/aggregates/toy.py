"""spread: how far the whole numbers of a window lie apart. A family as CONTRIBUTING.md describes
one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millwheel.core.aggregates.base import AggregateFunction, Aggregator, check_fits, wrong
from millwheel.core.aggregates.columns import Argument, ColumnAggregate
from millwheel.core.lazy_polars import pl


class Spread(Aggregator[list[int]]):
    """[smallest, largest], empty for no records (result None)."""

    ordered = False

    def check(self, value: Any, name: str) -> int:
        if type(value) is not int:
            raise wrong("spread", name, value, "a whole number")
        checked: int = check_fits("spread", name, value)
        return checked

    def create(self) -> list[int]:
        return []

    def add(self, acc: list[int], value: int, timestamp: int) -> list[int]:
        return self.merge(acc, [value, value])

    def merge(self, acc: list[int], other: list[int]) -> list[int]:
        ends = [*acc, *other]
        return [min(ends), max(ends)] if ends else []

    def result(self, acc: list[int]) -> float | None:
        return float(acc[1] - acc[0]) if acc else None


class Ends(ColumnAggregate):
    """Two columns, null where no record counted."""

    def __init__(self, column: str, argument: Argument) -> None:
        super().__init__(column, argument)
        self.low, self.high = f"{column}l", f"{column}h"
        self.dtypes = {self.low: pl.Int64, self.high: pl.Int64}

    def prepared(self) -> list[pl.Expr]:
        value = self._argument.or_null()
        return [value.alias(self.low), value.alias(self.high)]

    def merged(self) -> list[pl.Expr]:
        return [pl.col(self.low).min(), pl.col(self.high).max()]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        pairs = zip(groups[self.low].to_list(), groups[self.high].to_list(), strict=True)
        return pl.Series(
            [None if low is None else float(high - low) for low, high in pairs], dtype=pl.Float64
        )

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        return [] if row[self.low] is None else [row[self.low], row[self.high]]

    def from_acc(self, acc: Any) -> list[Any]:
        return acc or [None, None]


FUNCTIONS = {
    "spread": AggregateFunction(
        lambda options: Spread(),
        columns=lambda column, argument, _: Ends(column, argument),
        kinds=("int",),
        gives="the largest less the smallest whole number",
        keeps="two numbers",
    )
}
