"""count, sum, mean: exact, so that results depend on neither order nor grouping of the records."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from millwheel.core.aggregates.base import KINDS, AggregateFunction, Aggregator, wrong
from millwheel.core.aggregates.columns import (
    Argument,
    ColumnAggregate,
    Inexact,
    OverRanges,
    negative,
)
from millwheel.core.aggregates.families.adding import Cells
from millwheel.core.aggregates.families.exact_sums import (
    INT64,
    Exact,
    as_floats,
    check_int64,
    exact_add,
    exact_value,
    extremes,
    fits,
    fraction,
    fraction_part,
    from_exact,
    to_exact,
    whole_part,
)
from millwheel.core.lazy_polars import pl
from millwheel.errors import RecordError

_EXACT_INT = 2**53  # Fixed: a double holds every integer up to here


def check_number(function: str, value: Any, name: str) -> Any:
    """``value`` if it is a finite number, else RecordError."""
    kind = type(value)
    if kind is int or (kind is float and value - value == 0.0):
        return value
    if isinstance(value, (int, float)) and kind is not bool and math.isfinite(value):
        return float(value) if isinstance(value, float) else int(value)
    raise wrong(function, name, value, "a finite number")


class CountRecords(Aggregator[int]):
    """The number of records; with an argument, of those records whose argument is not None."""

    subtracts = True
    ordered = False
    linear = True
    needs_argument = False

    def create(self) -> int:
        return 0

    def add(self, acc: int, value: Any, timestamp: int) -> int:
        return acc if value is None else acc + 1

    def add_many(self, acc: int, values: Sequence[Any], timestamps: Sequence[int]) -> int:
        return acc + len(values) - values.count(None)

    def merge(self, acc: int, other: int) -> int:
        return acc + other

    def subtract(self, acc: int, value: Any, timestamp: int) -> int:
        return acc if value is None else acc - 1


class Sum(Aggregator[Exact]):
    """The sum; 0 for no records."""

    subtracts = True
    ordered = False
    linear = True

    def check(self, value: Any, name: str) -> Any:
        return check_number("sum", value, name)

    def create(self) -> Exact:
        return [0]

    def add(self, acc: Exact, value: Any, timestamp: int) -> Exact:
        if type(value) is int and type(acc[0]) is int and -INT64 <= acc[0] + value < INT64:
            acc[0] += value
            return acc
        return exact_add(acc, (value,))

    def add_many(self, acc: Exact, values: Sequence[Any], timestamps: Sequence[int]) -> Exact:
        return exact_add(acc, values)

    def merge(self, acc: Exact, other: Exact) -> Exact:
        return exact_add(acc, other)

    def subtract(self, acc: Exact, value: Any, timestamp: int) -> Exact:
        return exact_add(acc, (-value,))

    def result(self, acc: Exact) -> Any:
        return exact_value(acc)


class Mean(Aggregator[list[Any]]):
    """The mean; None for no records. Accumulator: [count, exact sum]."""

    subtracts = True
    ordered = False

    def check(self, value: Any, name: str) -> Any:
        return check_number("mean", value, name)

    def create(self) -> list[Any]:
        return [0, [0]]

    def add(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        return [acc[0] + 1, exact_add(acc[1], (value,))]

    def add_many(
        self, acc: list[Any], values: Sequence[Any], timestamps: Sequence[int]
    ) -> list[Any]:
        return [acc[0] + len(values), exact_add(acc[1], values)]

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        return [acc[0] + other[0], exact_add(acc[1], other[1])]

    def subtract(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        return [acc[0] - 1, exact_add(acc[1], (-value,))]

    def result(self, acc: list[Any]) -> float | None:
        count: int = acc[0]
        if not count:
            return None
        whole, *floats = acc[1]
        try:
            return (int(whole) if floats == [0.0] else exact_value(acc[1])) / count
        except RecordError:
            return float(fraction(acc[1]) / count)  # a mean is never beyond its records


# --- in columns -----------------------------------------------------------------------------------


class Additive(ColumnAggregate):
    """Aggregates that are added up, counts and sums; see
    :mod:`millwheel.core.aggregates.families.adding`."""

    over_ranges = OverRanges.SUMS
    subtracts = True

    @abstractmethod
    def addends(self) -> dict[str, pl.Expr]:
        """Columns of a bundle that :meth:`added` needs, by names that begin with that of its
        column."""

    @abstractmethod
    def added(self, addends: pl.DataFrame, cells: Cells) -> list[pl.Series]:
        """The columns of the groups, one for each entry of ``dtypes``. Raises Unadded."""


class Counted(Additive):
    """count."""

    def __init__(self, column: str, argument: Argument) -> None:
        super().__init__(column, argument)
        self.dtypes = {column: pl.Int64}

    def prepared(self) -> list[pl.Expr]:
        return [self._argument.counted().alias(self._column)]

    def addends(self) -> dict[str, pl.Expr]:
        return _condition_of(self._argument, self._column)

    def added(self, addends: pl.DataFrame, cells: Cells) -> list[pl.Series]:
        return [_counts(addends, self._column, cells)]

    def merged(self) -> list[pl.Expr]:
        return [pl.col(self._column).sum()]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        return groups[self._column]

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        return row[self._column]

    def from_acc(self, acc: Any) -> list[Any]:
        return [acc]


class Summed(Additive):
    """sum, of whole numbers or of floats. ``<column>n`` counts floats, since the row form's empty
    sum is a whole 0. A sum stays one of floats once it has had some, so records that are taken back
    count as well."""

    def __init__(self, column: str, argument: Argument) -> None:
        super().__init__(column, argument)
        self._floats = argument.kind == "float"
        fraction = {f"{column}f": pl.Int128} if self._floats else {}
        self.dtypes = {column: pl.Int128, **fraction, f"{column}n": pl.Int64}

    def prepared(self) -> list[pl.Expr]:
        argument, column = self._argument, self._column
        count = argument.counted().alias(f"{column}n")
        if not self._floats:
            return [argument.or_zero(argument.field.cast(pl.Int128)).alias(column), count]
        whole, fraction = whole_part(argument.field), fraction_part(argument.field)
        return [
            argument.or_zero(whole).alias(column),
            argument.or_zero(fraction).alias(f"{column}f"),
            count,
        ]

    def addends(self) -> dict[str, pl.Expr]:
        field = self._argument.field if self._floats else self._argument.field.cast(pl.Int64)
        return {self._column: self._argument.or_zero(field)} | _condition_of(
            self._argument, f"{self._column}n"
        )

    def added(self, addends: pl.DataFrame, cells: Cells) -> list[pl.Series]:
        values, count = (
            addends[self._column].to_numpy(),
            _counts(addends, f"{self._column}n", cells),
        )
        return [*cells.floats(values), count] if self._floats else [cells.wholes(values), count]

    def merged(self) -> list[pl.Expr]:
        return [pl.col(name).sum() for name in self.dtypes]

    def negated(self) -> list[pl.Expr]:
        counts = f"{self._column}n"
        return [
            pl.col(name) if name == counts else negative(name, kind)
            for name, kind in self.dtypes.items()
        ]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        if not self._floats:
            return check_int64(groups[self._column])
        return as_floats(groups[self._column], groups[f"{self._column}f"])

    def of_no_floats(self, groups: pl.DataFrame) -> bool:
        return self._floats and groups[f"{self._column}n"].min() == 0

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        whole = row[self._column]
        if self._floats and any(row[name] for name in self.dtypes):
            return to_exact(whole, row[f"{self._column}f"])
        return [whole if -(2**63) <= whole < 2**63 else str(whole)]

    def from_acc(self, acc: Any) -> list[Any]:
        if not self._floats:
            if len(acc) > 1:
                raise Inexact
            return [int(acc[0]), 1]
        return [*from_exact(acc), len(acc) - 1]

    def exactness_checks(self) -> list[pl.Expr]:
        checks = self._argument.exactness_checks()
        return [*checks, fits(self._argument.field)] if self._floats else checks


class Averaged(Additive):
    """mean: a sum, and the number of its values."""

    def __init__(self, column: str, argument: Argument) -> None:
        super().__init__(column, argument)
        self._sum = Summed(column, argument)
        self.dtypes = self._sum.dtypes

    def prepared(self) -> list[pl.Expr]:
        return self._sum.prepared()

    def exactness_checks(self) -> list[pl.Expr]:
        return self._sum.exactness_checks()

    def addends(self) -> dict[str, pl.Expr]:
        return self._sum.addends()

    def added(self, addends: pl.DataFrame, cells: Cells) -> list[pl.Series]:
        return self._sum.added(addends, cells)

    def merged(self) -> list[pl.Expr]:
        return self._sum.merged()

    def result(self, groups: pl.DataFrame) -> pl.Series:
        counts = groups[f"{self._column}n"]
        if f"{self._column}f" in self.dtypes:
            sums = as_floats(groups[self._column], groups[f"{self._column}f"])
        else:
            whole = groups[self._column]
            if max(map(abs, extremes(whole))) > _EXACT_INT:
                raise Inexact
            sums = whole.cast(pl.Float64)
        mean: pl.Series = sums / counts.replace(0, None)
        return mean.alias(self._column)

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        return [row[f"{self._column}n"], self._sum.to_acc(row)]

    def from_acc(self, acc: Any) -> list[Any]:
        *parts, _ = self._sum.from_acc(acc[1])
        return [*parts, acc[0]]


def _condition_of(argument: Argument, name: str) -> dict[str, pl.Expr]:
    return {} if argument.condition is None else {name: argument.condition}


def _counts(addends: pl.DataFrame, name: str, cells: Cells) -> pl.Series:
    return cells.counts(addends[name].to_numpy() if name in addends.columns else None)


FUNCTIONS = {
    "count": AggregateFunction(
        lambda options: CountRecords(),
        columns=lambda column, argument, _: Counted(column, argument),
        kinds=KINDS,
        gives="records; with an argument, those that have it",
        keeps="one number",
    ),
    "sum": AggregateFunction(
        lambda options: Sum(),
        columns=lambda column, argument, _: Summed(column, argument),
        gives="exact, in any order: no rounding until the end",
        keeps="a few numbers",
    ),
    "mean": AggregateFunction(
        lambda options: Mean(),
        columns=lambda column, argument, _: Averaged(column, argument),
        gives="exact, in any order: no rounding until the end",
        keeps="a few numbers",
    ),
}
