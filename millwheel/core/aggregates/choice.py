"""min, max, first, last, top_k, collect, count_distinct: aggregators that choose, keep or count values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from millwheel.core.aggregates.base import AggregateFunction, Aggregator, check_fits, wrong
from millwheel.core.aggregates.distinct import Distinct


def _check_ordered(function: str, value: Any, name: str) -> Any:
    kind = type(value)
    if kind is str or kind is int or (kind is float and not math.isnan(value)):
        return check_fits(function, name, value)
    raise wrong(function, name, value, "a number or text")


def _rank(value: Any) -> tuple[int, Any, bool]:
    """Numbers before text, so that a field of mixed types has an order, and 1 before 1.0, so that there is only one
    order."""
    return (1, value, False) if isinstance(value, str) else (0, value, type(value) is float)


class Extreme(Aggregator[list[Any]]):
    """min or max: a list of the one value, empty for no records (result None)."""

    ordered = False

    def __init__(self, function: str) -> None:
        self._function = function
        self._largest = function == "max"

    def check(self, value: Any, name: str) -> Any:
        checked = _check_ordered(self._function, value, name)
        return checked + 0.0 if type(checked) is float else checked  # -0.0 and 0.0 are equal: the order would decide

    def create(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        if not acc or (_rank(value) > _rank(acc[0]) if self._largest else _rank(value) < _rank(acc[0])):
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
        checked = _check_ordered("top_k", value, name)
        return checked + 0.0 if type(checked) is float else checked  # -0.0 and 0.0 are equal: the order would decide

    def create(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        return self._cut([*acc, value])

    def add_many(self, acc: list[Any], values: Sequence[Any], timestamps: Sequence[int]) -> list[Any]:
        return self._cut([*acc, *values])

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        return self._cut([*acc, *other])

    def result(self, acc: list[Any]) -> list[Any]:
        return list(acc)

    def _cut(self, values: list[Any]) -> list[Any]:
        return sorted(values, key=_rank, reverse=True)[: self.k]


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

    def add_many(self, acc: list[Any], values: Sequence[Any], timestamps: Sequence[int]) -> list[Any]:
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


class CountDistinct(Aggregator[dict[Any, int]]):
    """The exact number of different values. The accumulator has each value with the number of its records."""

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

    def add_many(self, acc: dict[Any, int], values: Sequence[Any], timestamps: Sequence[int]) -> dict[Any, int]:
        return self.merge(acc, Counter(values))

    def merge(self, acc: dict[Any, int], other: dict[Any, int]) -> dict[Any, int]:
        for value, count in other.items():
            acc[value] = acc.get(value, 0) + count
        return acc

    def subtract(self, acc: dict[Any, int], value: Any, timestamp: int) -> dict[Any, int]:
        left = acc.get(value, 0) - 1
        if left > 0:
            acc[value] = left
        else:
            acc.pop(value, None)
        return acc

    def result(self, acc: dict[Any, int]) -> int:
        return len(acc)


class CountGrowing(Aggregator[Distinct]):
    """:class:`CountDistinct` where no record is ever taken back: the values alone, whole numbers in bitmaps."""

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


def _top_k(options: Mapping[str, Any]) -> Aggregator[Any]:
    k = options.get("k")
    if type(k) is not int or k < 1:
        raise ValueError(f"top_k needs `k`, a whole number of at least 1, not {k!r}; write {{top_k: size, k: 10}}")
    return TopK(k)


FUNCTIONS = {
    "min": AggregateFunction(lambda options: Extreme("min")),
    "max": AggregateFunction(lambda options: Extreme("max")),
    "first": AggregateFunction(lambda options: ByTime("first")),
    "last": AggregateFunction(lambda options: ByTime("last")),
    "collect": AggregateFunction(lambda options: Collect()),
    "count_distinct": AggregateFunction(lambda options: CountDistinct()),
    "top_k": AggregateFunction(_top_k, ("k",)),
}
