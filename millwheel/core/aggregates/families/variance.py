"""variance and stddev: the count, the exact sum, and the exact sum of the squares.

In columns the square of a float that fits is a whole number of 2**-180. Its rounded value and the
error of rounding, both floats (Dekker's product), are added to three 128-bit integers, in units of
1, 2**-90 and 2**-180. So the sums are exact in any order, and the result is rounded once, to the
bits of the row form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from millwheel.core.aggregates.base import AggregateFunction, Aggregator, wrong
from millwheel.core.aggregates.columns import Argument, ColumnAggregate, Inexact, OverRanges
from millwheel.core.aggregates.families.exact_sums import (
    INT64,
    SCALE_BITS,
    exact_add,
    fits,
    floats_of,
    fraction,
    fraction_part,
    from_exact,
    scaled,
    to_exact,
    whole_part,
)
from millwheel.core.aggregates.families.numeric import check_number
from millwheel.core.lazy_polars import pl

_SPLIT = 134217729.0  # Fixed: 2**27 + 1 halves a double (Dekker)
LARGEST_SQUARED = 1e150
"""Fixed: squares of larger numbers overflow."""
_WORTH_ARRAYS = 16  # for fewer numbers making an array takes longer
_LARGEST = 1 << 47
"""Squares of smaller numbers can be added 2**33 times before 128 bits overflow."""
_MOST = 1 << 110  # larger sums of squares go by rows: beside them there is room for as many again
_SCALE = 2.0**SCALE_BITS  # Fixed: the factor of fractions
_SQUARE_BITS = 2 * SCALE_BITS  # Fixed: of the fraction in an exact sum of squares


class Variance(Aggregator[list[Any]]):
    """The variance, or its root: [count, exact sum, exact sum of squares]. None for too few
    records.

    ``sample`` divides by n - 1 (the default), otherwise by n.
    """

    subtracts = True
    ordered = False

    def __init__(self, function: str, sample: bool) -> None:
        self._function = function
        self.root = function == "stddev"
        self.sample = sample

    def check(self, value: Any, name: str) -> Any:
        value = check_number(self._function, value, name)
        if abs(value) > LARGEST_SQUARED:
            raise wrong(self._function, name, value, "a number that can be squared (at most 1e150)")
        return value

    def create(self) -> list[Any]:
        return [0, [0], [0]]

    def add(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        return [acc[0] + 1, exact_add(acc[1], (value,)), exact_add(acc[2], _square(value))]

    def add_many(
        self, acc: list[Any], values: Sequence[Any], timestamps: Sequence[int]
    ) -> list[Any]:
        if len(values) >= _WORTH_ARRAYS and set(map(type, values)) == {float}:
            squares = _squares(values)
        else:
            squares = [part for value in values for part in _square(value)]
        return [acc[0] + len(values), exact_add(acc[1], values), exact_add(acc[2], squares)]

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        return [acc[0] + other[0], exact_add(acc[1], other[1]), exact_add(acc[2], other[2])]

    def subtract(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        squares = [-part for part in _square(value)]
        return [acc[0] - 1, exact_add(acc[1], (-value,)), exact_add(acc[2], squares)]

    def result(self, acc: list[Any]) -> float | None:
        count = acc[0]
        divisor = count - 1 if self.sample else count
        if divisor < 1:
            return None
        total = fraction(acc[1])
        # Squares of numbers below 1e-150 are not exact any more; their variance may be slightly
        # below 0.
        variance = max(Fraction(0), (fraction(acc[2]) - total * total / count) / divisor)
        return math.sqrt(variance) if self.root else float(variance)


def _square(value: Any) -> tuple[Any, ...]:
    """Numbers whose exact sum is the exact square (Dekker's product for floats)."""
    square = value * value
    if type(value) is int:
        return (square,)
    high = value * _SPLIT - (value * _SPLIT - value)
    low = value - high
    return (square, ((high * high - square) + 2.0 * high * low) + low * low)


def _squares(values: Sequence[float]) -> list[float]:
    """:func:`_square` of each: the same operations on an array give the same bits."""
    floats = np.array(values)
    squares = floats * floats
    high = floats * _SPLIT - (floats * _SPLIT - floats)
    low = floats - high
    return [*squares.tolist(), *(((high * high - squares) + 2.0 * high * low) + low * low).tolist()]


# --- in columns -----------------------------------------------------------------------------------


class Moments(ColumnAggregate):
    """The state of variance or stddev. ``<column>`` and ``<column>f`` are the sum, ``<column>n``
    counts, and ``<column>s``, ``<column>t`` and ``<column>u`` are the sum of the squares."""

    over_ranges = OverRanges.SUMS
    subtracts = True

    def __init__(self, column: str, argument: Argument, aggregator: Variance) -> None:
        super().__init__(column, argument)
        self._aggregator = aggregator
        self._floats = argument.kind == "float"
        self._square, self._error = f"\0{column}s", f"\0{column}e"  # no field has such a name
        parts = [("", pl.Int128), ("f", pl.Int128), ("n", pl.Int64)]
        parts += [("s", pl.Int128), ("t", pl.Int128), ("u", pl.Int128)]
        self.dtypes = {
            f"{column}{part}": kind
            for part, kind in parts
            if self._floats or part not in ("f", "t", "u")
        }

    def staged(self) -> list[pl.Expr]:
        if not self._floats:
            return []
        field = self._argument.field
        square = field * field
        high = field * _SPLIT - (field * _SPLIT - field)
        low = field - high
        error = ((high * high - square) + 2.0 * high * low) + low * low
        return [square.alias(self._square), error.alias(self._error)]

    def prepared(self) -> list[pl.Expr]:
        argument, column = self._argument, self._column
        count = argument.counted().alias(f"{column}n")
        if not self._floats:
            wide = argument.field.cast(pl.Int128)
            return [
                argument.or_zero(wide).alias(column),
                count,
                argument.or_zero(wide * wide).alias(f"{column}s"),
            ]
        square, error = _limbs(pl.col(self._square)), _limbs(pl.col(self._error))
        squares = [argument.or_zero(one + other) for one, other in zip(square, error, strict=True)]
        return [
            argument.or_zero(whole_part(argument.field)).alias(column),
            argument.or_zero(fraction_part(argument.field)).alias(f"{column}f"),
            count,
            *(limb.alias(f"{column}{part}") for limb, part in zip(squares, "stu", strict=True)),
        ]

    def merged(self) -> list[pl.Expr]:
        return [pl.col(name).sum() for name in self.dtypes]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        counts, sums, squares = self._exact(groups)
        return pl.Series(self._column, list(map(self._variance, counts, sums, squares)), pl.Float64)

    def _exact(self, groups: pl.DataFrame) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """The count, the sum, and the sum of squares of each group, scaled to whole numbers."""
        columns = {name: groups[name].to_list() for name in self.dtypes}
        column = self._column
        counts, wholes, squares = (columns[f"{column}{part}"] for part in ("n", "", "s"))
        if not self._floats:
            return counts, wholes, squares
        sums = [
            (whole << SCALE_BITS) + rest
            for whole, rest in zip(wholes, columns[f"{column}f"], strict=True)
        ]
        limbs = zip(squares, columns[f"{column}t"], columns[f"{column}u"], strict=True)
        return counts, sums, [_joined(*each) for each in limbs]

    def _variance(self, count: int, total: int, squares: int) -> float | None:
        divisor = count - 1 if self._aggregator.sample else count
        if divisor < 1:
            return None
        scale = _SQUARE_BITS if self._floats else 0
        # Python rounds the quotient of two whole numbers of any size once.
        variance = (squares * count - total * total) / (count * divisor << scale)
        return math.sqrt(variance) if self._aggregator.root else variance

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        column = self._column
        count, whole, squares = row[f"{column}n"], row[column], row[f"{column}s"]
        if not any(row[name] for name in self.dtypes):
            return [0, [0], [0]]
        if not self._floats:
            return [count, [_kept(whole)], [_kept(squares)]]
        square = _joined(squares, row[f"{column}t"], row[f"{column}u"])
        return [count, to_exact(whole, row[f"{column}f"]), [0, *floats_of(square, _SQUARE_BITS)]]

    def from_acc(self, acc: Any) -> list[Any]:
        count, sums, squares = acc
        if not self._floats:
            if len(sums) > 1 or len(squares) > 1 or abs(int(squares[0])) >= _MOST:
                raise Inexact
            return [int(sums[0]), count, int(squares[0])]
        total = sum(
            (scaled(part, _SQUARE_BITS) for part in squares[1:]), int(squares[0]) << _SQUARE_BITS
        )
        if abs(total) >> _SQUARE_BITS >= _MOST:
            raise Inexact
        rest = total & ((1 << _SQUARE_BITS) - 1)
        limbs = (total >> _SQUARE_BITS, rest >> SCALE_BITS, rest & ((1 << SCALE_BITS) - 1))
        return [*from_exact(sums), count, *limbs]

    def exactness_checks(self) -> list[pl.Expr]:
        field = self._argument.field
        checks = [*self._argument.exactness_checks(), field.is_between(-_LARGEST, _LARGEST).all()]
        return [*checks, fits(field)] if self._floats else checks


def _limbs(column: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Floats as whole numbers of 1, 2**-90 and 2**-180. Truncation is exact, and so are the
    differences."""
    whole = column.cast(pl.Int128)
    scaled_rest = (column - whole.cast(pl.Float64)) * _SCALE
    middle = scaled_rest.cast(pl.Int128)
    return whole, middle, ((scaled_rest - middle.cast(pl.Float64)) * _SCALE).cast(pl.Int128)


def _joined(whole: int, middle: int, last: int) -> int:
    return (((whole << SCALE_BITS) + middle) << SCALE_BITS) + last


def _kept(whole: int) -> int | str:
    return whole if -INT64 <= whole < INT64 else str(whole)


def _variance(function: str) -> AggregateFunction:
    def make(options: Mapping[str, Any]) -> Aggregator[Any]:
        population = options.get("population", False)
        if type(population) is not bool:
            raise ValueError(
                f"{function}: `population` must be true (divide by n) or false, not {population!r}"
            )
        return Variance(function, not population)

    return AggregateFunction(
        make,
        ("population",),
        Moments,
        gives="exact, of a sample; `population: true` for all",
        keeps="a few numbers",
    )


FUNCTIONS = {"variance": _variance("variance"), "stddev": _variance("stddev")}
