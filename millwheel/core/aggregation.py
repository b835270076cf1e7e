"""Several named aggregates over the same records, each with its argument and condition, as one aggregation.

A window machine needs only this interface: ``prepare`` a record once, outside of any state (that is where bad
values are found), then ``add_many`` what was prepared to the accumulators of each window it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millwheel.core.aggregate_functions import make_aggregator
from millwheel.core.aggregates import Aggregator
from millwheel.core.aggregates_choice import Collect
from millwheel.core.spec import AggregateSpec
from millwheel.errors import RecordError

Evaluate = Callable[[Any], Any]
"""A record's value -> the value of an expression over its fields. Raises RecordError."""
Prepared = Any
"""What ``prepare`` made of one record; opaque, but plain data."""


class _Skip:
    """Stands for the argument of a record that an aggregate's condition leaves out."""


_SKIP = _Skip()


class Aggregation(Protocol):
    """What a window does with its records."""

    subtracts: bool
    """A record can be taken out of an accumulator."""
    linear: bool
    """Panes may hold differences (see :class:`Aggregator`)."""

    def prepare(self, value: Any) -> Prepared | None:
        """What is needed of a record; None when its filter leaves it out. RecordError for unusable values."""

    def create(self) -> Any:
        """The accumulator of an empty window."""

    def add_many(self, acc: Any, prepared: Sequence[Prepared], timestamps: Sequence[int]) -> Any:
        """The accumulator with records added (the given one may be changed)."""

    def merge(self, acc: Any, other: Any) -> Any:
        """Both together."""

    def subtract(self, acc: Any, prepared: Prepared, timestamp: int) -> Any:
        """Without one record."""

    def result(self, acc: Any) -> Any:
        """What a pane says."""


@dataclass(frozen=True, slots=True)
class Named:
    """One output field: ``evaluate`` gives the argument (None: the whole value), ``condition`` filters."""

    name: str
    aggregator: Aggregator[Any]
    argument: str = ""
    evaluate: Evaluate | None = None
    condition: Evaluate | None = None


class NamedAggregation:
    """A dict of results by name. The accumulator is the list of the aggregates' accumulators."""

    def __init__(self, parts: Sequence[Named], condition: Evaluate | None = None) -> None:
        self.parts = tuple(parts)
        self.subtracts = all(part.aggregator.subtracts for part in parts)
        self.linear = all(part.aggregator.linear for part in parts)
        self._condition = condition
        self._conditional = any(part.condition for part in parts)
        self._arguments = [_Argument(part) for part in parts]
        self._count_only = all(not part.aggregator.needs_argument and not part.argument for part in parts)

    def prepare(self, value: Any) -> Prepared | None:
        if self._condition is not None and not self._condition(value):
            return None
        if self._count_only and not self._conditional:
            return _ONES[len(self.parts)] if len(self.parts) < len(_ONES) else (1,) * len(self.parts)
        known: dict[str, Any] = {}
        return tuple([argument.of(value, known) for argument in self._arguments])

    def create(self) -> list[Any]:
        return [part.aggregator.create() for part in self.parts]

    def add_many(self, acc: list[Any], prepared: Sequence[Prepared], timestamps: Sequence[int]) -> list[Any]:
        if len(prepared) == 1:
            timestamp = timestamps[0]
            for i, argument in enumerate(prepared[0]):
                if argument is not _SKIP:
                    acc[i] = self.parts[i].aggregator.add(acc[i], argument, timestamp)
            return acc
        if not prepared:
            return acc
        for i, (part, column) in enumerate(zip(self.parts, zip(*prepared, strict=True), strict=True)):
            times = timestamps
            if part.condition is not None:
                kept = [pair for pair in zip(column, timestamps, strict=True) if pair[0] is not _SKIP]
                column, times = [pair[0] for pair in kept], [pair[1] for pair in kept]  # type: ignore[assignment]
            if column:
                acc[i] = part.aggregator.add_many(acc[i], column, times)
        return acc

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        return [part.aggregator.merge(a, b) for part, a, b in zip(self.parts, acc, other, strict=True)]

    def subtract(self, acc: list[Any], prepared: Prepared, timestamp: int) -> list[Any]:
        return [
            a if argument is _SKIP else part.aggregator.subtract(a, argument, timestamp)
            for part, a, argument in zip(self.parts, acc, prepared, strict=True)
        ]

    def result(self, acc: list[Any]) -> dict[str, Any]:
        return {part.name: part.aggregator.result(a) for part, a in zip(self.parts, acc, strict=True)}


_ONES = tuple((1,) * n for n in range(17))


class _Argument:
    """Evaluates and checks the argument of one aggregate; equal texts are evaluated once per record."""

    __slots__ = ("_check", "_condition", "_evaluate", "_name", "_needed")

    def __init__(self, part: Named) -> None:
        self._name = part.argument
        self._evaluate = part.evaluate
        self._condition = part.condition
        self._check = part.aggregator.check
        self._needed = part.aggregator.needs_argument

    def of(self, value: Any, known: dict[str, Any]) -> Any:
        if self._condition is not None and not self._condition(value):
            return _SKIP
        if self._evaluate is None:
            return self._check(value, self._name) if self._needed else 1
        name = self._name
        if name in known:
            return self._check(known[name], name)
        found = known[name] = self._evaluate(value)
        return self._check(found, name)


class SingleAggregation:
    """One aggregator over whole values (or ``evaluate`` of them); the result stands alone."""

    def __init__(self, aggregator: Aggregator[Any], evaluate: Evaluate | None = None, name: str = "") -> None:
        self.aggregator = aggregator
        self.subtracts = aggregator.subtracts
        self.linear = aggregator.linear
        self._evaluate = evaluate
        self._name = name
        self.create = aggregator.create
        self.merge = aggregator.merge
        self.subtract = aggregator.subtract
        self.result = aggregator.result
        self.add_many = aggregator.add_many

    def prepare(self, value: Any) -> Prepared | None:
        return (self.aggregator.check(value if self._evaluate is None else self._evaluate(value), self._name),)[0]


class Collected(SingleAggregation):
    """No aggregate: a pane says the values themselves, in order of arrival. The full-buffer form."""

    def __init__(self) -> None:
        super().__init__(Collect())


def field_reader(name: str, optional: bool = False) -> Evaluate:
    """Reads one field of a dict or an attribute of an object. RecordError, or None if ``optional``, without it."""

    def read(value: Any) -> Any:
        if type(value) is dict:
            if name in value:
                return value[name]
        elif hasattr(value, name):
            return getattr(value, name)
        if optional:
            return None
        there = ", ".join(sorted(map(str, value))) if isinstance(value, dict) else type(value).__name__
        raise RecordError(f"the record has no field {name!r}; it has: {there or 'no fields'}")

    return read


def compile_aggregation(
    specs: Sequence[AggregateSpec],
    compile_expression: Callable[[str], Any],
    load: Callable[[str], Any] | None = None,
    condition: str = "",
) -> NamedAggregation:
    """The aggregation that the YAML describes.

    ``compile_expression(text)`` returns something with ``evaluate(value)``; ``load("module:Class")`` returns the
    user's Aggregator class. ValueError, with the fix, for what cannot work.
    """
    return NamedAggregation(
        [_named(spec, compile_expression, load) for spec in specs],
        compile_expression(condition).evaluate if condition else None,
    )


def _named(
    spec: AggregateSpec, compile_expression: Callable[[str], Any], load: Callable[[str], Any] | None
) -> Named:
    made = make_aggregator(spec.function, spec.options, load)
    if made.needs_argument and not spec.argument:
        raise ValueError(f"{spec.name}: {spec.function} needs a field or an expression; write {{{spec.function}: size}}")
    evaluate = _argument(spec.argument, not made.needs_argument, compile_expression)
    condition = compile_expression(spec.condition).evaluate if spec.condition else None
    return Named(spec.name, made, spec.argument, evaluate, condition)


def _argument(text: str, optional: bool, compile_expression: Callable[[str], Any]) -> Evaluate | None:
    if not text:
        return None
    if text.isidentifier():
        return field_reader(text, optional)
    found: Evaluate = compile_expression(text).evaluate
    return found
