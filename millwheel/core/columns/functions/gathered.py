"""Aggregates whose accumulators fit no column: columns gather the values of each group, and the row form adds them
together.

This gains less than a column form, but nothing is decoded, checked or looked up for each record. The state stays in
rows. Only functions whose results do not depend on the order of the records are taken (``ordered``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millwheel.core.aggregates.base import Aggregator
from millwheel.core.columns.arguments import Argument
from millwheel.core.columns.fixed_sums import Unfit
from millwheel.core.columns.lazy_polars import dtype, pl
from millwheel.errors import RecordError


class Gathered:
    """The values of a group as a list, in the order in which they came."""

    holds = False
    grows = True

    def __init__(self, column: str, argument: Argument, aggregator: Aggregator[Any]) -> None:
        self._column = column
        self._argument = argument
        self._aggregator = aggregator
        self.dtypes: dict[str, Any] = {column: pl.List(dtype(argument.kind))}

    def staged(self) -> list[pl.Expr]:
        return []

    def prepared(self) -> list[pl.Expr]:
        return [self._argument.or_null().alias(self._column)]

    def grouped(self) -> list[pl.Expr]:
        return [pl.col(self._column).drop_nulls()]

    def merged(self) -> list[pl.Expr]:
        return [pl.col(self._column).explode().drop_nulls()]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        raise Unfit

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        values = row[self._column]
        acc = self._aggregator.create()
        try:
            return self._aggregator.add_many(acc, values, [0] * len(values)) if values else acc
        except RecordError:  # of all of them together: one by one it shows which
            raise Unfit from None

    def from_acc(self, acc: Any) -> list[Any]:
        raise Unfit

    def unfit(self) -> list[pl.Expr]:
        return self._argument.unfit()
