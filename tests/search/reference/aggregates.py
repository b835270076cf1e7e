"""Aggregates, each as a plain computation over all records there are. Sketches are asked of their
own library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec
from ddsketch.mapping import LogarithmicMapping

from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.codec import encode_value
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.errors import RecordError
from tests.search.reference.expressions import evaluated

_WORD = "\0left out"
"""In the place of an argument that an aggregate leaves out."""


@dataclass(frozen=True, slots=True)
class Item:
    """One record of a window. ``arguments`` has one value for each aggregate; ``number`` is the
    order of arrival."""

    value: Any
    timestamp: int
    arguments: tuple[Any, ...]
    number: int
    stream: str = ""

    def same(self, other: Item) -> bool:
        """Whether a retraction that reads ``other`` takes this back."""
        return self.timestamp == other.timestamp and self.alike(other)

    def alike(self, other: Item) -> bool:
        """Whether both have one value."""
        return bool(encode_value(self.value) == encode_value(other.value))


class Aggregates:
    """The results of one computation by name. ``read`` turns a value into arguments; None: the
    record is left out. ``whole``: the result is the items themselves."""

    def __init__(
        self, spec: ComputationSpec, load: Callable[[str], Any], whole: bool = False
    ) -> None:
        self._whole = whole
        self._where = compile_expression(spec.condition).evaluate if spec.condition else None
        self._parts = [_Part(each, load) for each in spec.aggregates]
        self._buffered = not spec.aggregates

    @property
    def linear(self) -> bool:
        """Differences of results add up."""
        return bool(self._parts) and all(
            part.spec.function in ("count", "sum") for part in self._parts
        )

    def read(self, value: Any) -> tuple[Any, ...] | None:
        """RecordError for a value that an aggregate cannot use."""
        if self._where is not None and not self._where(value):
            return None
        return tuple(self._read_part(part, value) for part in self._parts)

    def _read_part(self, part: _Part, value: Any) -> Any:
        try:
            return part.read(value)
        except RecordError as ex:
            ex.aggregate = part.spec.name
            raise

    def result(self, items: Sequence[Item], less: Sequence[Item] = ()) -> Any:
        """Of all items, without the results of those in ``less`` (only if linear)."""
        if self._whole:
            return list(items)
        if self._buffered:
            return [[item.value, item.timestamp] for item in items]
        found = {
            part.spec.name: part.result(items, index) for index, part in enumerate(self._parts)
        }
        if less:
            for index, part in enumerate(self._parts):
                found[part.spec.name] -= part.result(less, index)
        return found


class _Part:
    def __init__(self, spec: AggregateSpec, load: Callable[[str], Any]) -> None:
        self.spec = spec
        self._condition = evaluated(spec.condition) if spec.condition else None
        self._own = make_aggregator(spec.function, spec.options, load)
        self._optional = not self._own.needs_argument

    def read(self, value: Any) -> Any:
        if self._condition is not None and not self._condition(value):
            return _WORD
        return self._own.check(self._argument(value), self.spec.argument)

    def _argument(self, value: Any) -> Any:
        text = self.spec.argument
        if self.spec.function in _ROWS:
            texts, _ = _orders(self.spec.function, self.spec.options)
            return [[self._read_text(each, value) for each in texts], value]
        if not text:
            return 1 if self._optional else value
        return self._read_text(text, value)

    def _read_text(self, text: str, value: Any) -> Any:
        if not text.isidentifier():
            return evaluated(text)(value)
        if isinstance(value, dict) and text in value:
            return value[text]
        if not isinstance(value, dict) and hasattr(value, text):
            return getattr(value, text)
        if self._optional:
            return None
        there = (
            ", ".join(sorted(map(str, value))) if isinstance(value, dict) else type(value).__name__
        )
        raise RecordError(f"the record has no field {text!r}; it has: {there or 'no fields'}")

    def result(self, items: Sequence[Item], index: int) -> Any:
        used = [item for item in items if item.arguments[index] is not _WORD]
        function = _PLAIN.get(self.spec.function)
        if function is not None:
            return function(
                [(item.arguments[index], item.timestamp) for item in used], self.spec.options
            )
        acc = self._own.create()
        for item in used:
            acc = self._own.add(acc, item.arguments[index], item.timestamp)
        return self._own.result(acc)


Pairs = list[tuple[Any, int]]


def _sum(values: list[Any]) -> int | float:
    total = sum((Fraction(value) for value in values), Fraction(0))
    if any(isinstance(value, float) for value in values) or not -(2**63) <= total < 2**63:
        return float(total)
    return int(total)


def _mean(pairs: Pairs, options: Any) -> Any:
    values = [value for value, _ in pairs]
    total = sum((Fraction(value) for value in values), Fraction(0))
    if not values:
        return None
    # the exact sum becomes a float, unless it is whole, and is divided then
    return float(total / len(values)) if total.denominator == 1 else float(total) / len(values)


def _variance(pairs: Pairs, options: Any) -> Any:
    exact = _spread(pairs, options)
    return None if exact is None else float(exact)


def _stddev(pairs: Pairs, options: Any) -> Any:
    exact = _spread(pairs, options)
    return None if exact is None else math.sqrt(exact)


def _spread(pairs: Pairs, options: Any) -> Fraction | None:
    values = [Fraction(value) for value, _ in pairs]
    divisor = len(values) - (0 if options.get("population") else 1)
    if divisor < 1:
        return None
    mean = sum(values, Fraction(0)) / len(values)
    return sum(((value - mean) ** 2 for value in values), Fraction(0)) / divisor


def _rank(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _first(pairs: Pairs, options: Any) -> Any:
    """Among equal times the first to come."""
    return min(pairs, key=lambda pair: pair[1])[0] if pairs else None


def _last(pairs: Pairs, options: Any) -> Any:
    """Among equal times the last to come."""
    return max(reversed(pairs), key=lambda pair: pair[1])[0] if pairs else None


def _quantile(pairs: Pairs, options: Any) -> Any:
    """The middle of the bin of the value with this rank."""
    values = sorted(value for value, _ in pairs)
    if not values:
        return None
    value = values[math.floor(options["q"] * (len(values) - 1))]
    bins = LogarithmicMapping(options.get("accuracy", 0.01))
    size = bins.value(bins.key(abs(value))) if value else 0.0
    return -size if value < 0 else size


def _orders(function: str, options: Any) -> tuple[list[str], list[bool]]:
    """The expressions of an order, and which of them are descending."""
    by = options.get("by", [])
    texts = [by] if isinstance(by, str) else by
    if function != "top_rows":
        return texts, [function == "max_by"] * len(texts)
    ways = [text.endswith(" desc") for text in texts]
    return [text.removesuffix(" desc").removesuffix(" asc") for text in texts], ways


_content = msgspec.msgpack.Encoder(order="deterministic").encode


def _in_order(function: str) -> Callable[[Pairs, Any], list[Any]]:
    """The records in their order: the least of all orders first, each after it over all again."""

    def ordered(pairs: Pairs, options: Any) -> list[Any]:
        rows = [(values, time, row) for (values, row), time in pairs]
        rows.sort(key=lambda each: (_content(each[2]), msgspec.msgpack.encode(each[2])))
        rows.sort(key=lambda each: each[1], reverse=function == "last_row")
        _, ways = _orders(function, options)
        for index, descending in reversed(list(enumerate(ways))):
            rows.sort(key=lambda each, at=index: _rank(each[0][at]), reverse=descending)  # type: ignore[misc]
        return [row for _, _, row in rows]

    return ordered


def _one_row(function: str) -> Callable[[Pairs, Any], Any]:
    ordered = _in_order(function)
    return lambda pairs, options: ordered(pairs, options)[0] if pairs else None


def _top_rows(pairs: Pairs, options: Any) -> list[Any]:
    rows = _in_order("top_rows")(pairs, options)[: options["k"]]
    name = options.get("rank")
    return [{**row, name: place} for place, row in enumerate(rows, 1)] if name else rows


_ROWS = ("max_by", "min_by", "first_row", "last_row", "top_rows")
_PLAIN: dict[str, Callable[[Pairs, Any], Any]] = {
    "count": lambda pairs, options: sum(value is not None for value, _ in pairs),
    "sum": lambda pairs, options: _sum([value for value, _ in pairs]),
    "mean": _mean,
    "quantile": _quantile,
    "variance": _variance,
    "stddev": _stddev,
    "min": lambda pairs, options: min((value for value, _ in pairs), key=_rank, default=None),
    "max": lambda pairs, options: max((value for value, _ in pairs), key=_rank, default=None),
    "first": _first,
    "last": _last,
    "top_k": lambda pairs, options: sorted((v for v, _ in pairs), key=_rank, reverse=True)[
        : options["k"]
    ],
    "collect": lambda pairs, options: [value for value, _ in pairs],
    "count_distinct": lambda pairs, options: len({value for value, _ in pairs}),
    **{function: _one_row(function) for function in _ROWS[:-1]},
    "top_rows": _top_rows,
}
