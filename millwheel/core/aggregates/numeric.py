"""count, sum, mean, variance, stddev: exact, so that results depend on neither order nor grouping of the records.

Floats are summed without any rounding: an accumulator holds the exact sum as floats of falling size (the sum as
Python's ``math.fsum`` rounds it, then the remainder, and so on). The same records give the same bits in any grouping,
records can be subtracted again, and the result is the correctly rounded sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from millwheel.core.aggregates.base import AggregateFunction, Aggregator, wrong
from millwheel.errors import RecordError

Exact = list[Any]
"""``[whole, float, float, ...]``, whose sum is exact. ``whole`` is the sum of the ints, as text beyond 64 bits. There
is at least one float if any was added, so that a sum of floats stays a float (also once they are subtracted again)."""

_INT64 = 2**63  # Fixed: integers from here on are no int64
_SPLIT = 134217729.0  # Fixed: 2**27 + 1 halves a double (Dekker)
LARGEST_SQUARED = 1e150
"""Fixed: squares of larger numbers overflow."""
_WORTH_ARRAYS = 16  # for fewer numbers making an array takes longer
_fsum = math.fsum


def exact_floats(parts: Sequence[float]) -> list[float]:
    """The canonical floats with exactly the same sum as ``parts``: each is the rounded sum of the rest."""
    try:
        total = _fsum(parts)
    except (OverflowError, ValueError) as ex:
        raise RecordError("the sum has left the range of floating point numbers") from ex
    found = [total + 0.0]
    rest = [*parts, -total]
    left = _fsum(rest)
    while left:
        found.append(left)
        rest.append(-left)
        left = _fsum(rest)
    return found


def exact_add(acc: Exact, values: Sequence[Any]) -> Exact:
    """``acc`` with the values added."""
    floats = acc[1:]
    if len(values) == 1 and type(values[0]) is float:
        floats.append(values[0])
        return [acc[0], *exact_floats(floats)]
    whole = int(acc[0])
    for value in values:
        if type(value) is float:
            floats.append(value)
        else:
            whole += int(value)
    kept = whole if -_INT64 <= whole < _INT64 else str(whole)
    return [kept, *exact_floats(floats)] if len(floats) > 1 else [kept, *floats]


def exact_value(acc: Exact) -> int | float:
    """The sum: an int when only ints went in (and it fits 64 bits), else the nearest float."""
    whole = int(acc[0])
    if len(acc) == 1:
        return whole if -_INT64 <= whole < _INT64 else float(whole)
    if -(2**53) <= whole <= 2**53:
        return _fsum((whole, *acc[1:]))
    return float(_fraction(acc))


def _fraction(acc: Exact) -> Fraction:
    return sum((Fraction(part) for part in acc[1:]), Fraction(int(acc[0])))


def check_number(function: str, value: Any, name: str) -> Any:
    """``value`` if it is a finite number, else RecordError."""
    kind = type(value)
    if kind is int or (kind is float and value - value == 0.0):
        return value
    if isinstance(value, (int, float)) and kind is not bool and math.isfinite(value):
        return float(value) if isinstance(value, float) else int(value)
    raise wrong(function, name, value, "a finite number")


def _negated(value: Any) -> Any:
    return -value


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
        if type(value) is int and type(acc[0]) is int and -_INT64 <= acc[0] + value < _INT64:
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

    def add_many(self, acc: list[Any], values: Sequence[Any], timestamps: Sequence[int]) -> list[Any]:
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
        return (int(whole) if floats == [0.0] else exact_value(acc[1])) / count


class Variance(Aggregator[list[Any]]):
    """The variance, or its root: [count, exact sum, exact sum of squares]. None for too few records.

    ``sample`` divides by n - 1 (the default), otherwise by n.
    """

    subtracts = True
    ordered = False

    def __init__(self, function: str, sample: bool) -> None:
        self._function = function
        self._sample = sample

    def check(self, value: Any, name: str) -> Any:
        value = check_number(self._function, value, name)
        if abs(value) > LARGEST_SQUARED:
            raise wrong(self._function, name, value, "a number that can be squared (at most 1e150)")
        return value

    def create(self) -> list[Any]:
        return [0, [0], [0]]

    def add(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        return [acc[0] + 1, exact_add(acc[1], (value,)), exact_add(acc[2], _square(value))]

    def add_many(self, acc: list[Any], values: Sequence[Any], timestamps: Sequence[int]) -> list[Any]:
        if len(values) >= _WORTH_ARRAYS and set(map(type, values)) == {float}:
            squares = _squares(values)
        else:
            squares = [part for value in values for part in _square(value)]
        return [acc[0] + len(values), exact_add(acc[1], values), exact_add(acc[2], squares)]

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        return [acc[0] + other[0], exact_add(acc[1], other[1]), exact_add(acc[2], other[2])]

    def subtract(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        squares = [_negated(part) for part in _square(value)]
        return [acc[0] - 1, exact_add(acc[1], (-value,)), exact_add(acc[2], squares)]

    def result(self, acc: list[Any]) -> float | None:
        count = acc[0]
        divisor = count - 1 if self._sample else count
        if divisor < 1:
            return None
        total = _fraction(acc[1])
        # Squares of numbers below 1e-150 are not exact any more; their variance may come out a hair below nothing.
        variance = max(Fraction(0), (_fraction(acc[2]) - total * total / count) / divisor)
        return math.sqrt(variance) if self._function == "stddev" else float(variance)


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
    import numpy as np  # not above: `millwheel --help` does not need it

    given = np.array(values)
    squares = given * given
    high = given * _SPLIT - (given * _SPLIT - given)
    low = given - high
    return [*squares.tolist(), *(((high * high - squares) + 2.0 * high * low) + low * low).tolist()]


def _variance(function: str) -> AggregateFunction:
    def make(options: Mapping[str, Any]) -> Aggregator[Any]:
        population = options.get("population", False)
        if type(population) is not bool:
            raise ValueError(f"{function}: `population` must be true (divide by n) or false, not {population!r}")
        return Variance(function, not population)

    return AggregateFunction(make, ("population",))


FUNCTIONS = {
    "count": AggregateFunction(lambda options: CountRecords()),
    "sum": AggregateFunction(lambda options: Sum()),
    "mean": AggregateFunction(lambda options: Mean()),
    "variance": _variance("variance"),
    "stddev": _variance("stddev"),
}
