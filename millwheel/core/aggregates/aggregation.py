"""The aggregation of a window: one aggregator, several named ones, or none.

A window machine needs only the interface :class:`Aggregation`: ``prepare`` a record once, outside
of any state (that is where bad values are found), then ``add_many`` prepared records to the
accumulator of each window they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millwheel.core.aggregates.base import Aggregator, one_by_one
from millwheel.core.aggregates.families.choice import Collect
from millwheel.core.aggregates.stored_form import WHOLE
from millwheel.errors import RecordError

Evaluate = Callable[[Any], Any]
"""A record's value -> the value of an expression over its fields. Raises RecordError."""
Prepared = Any
"""The result of ``prepare`` for one record; opaque."""


class _Mark:
    """A value that no record can have."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


FILTERED = _Mark("FILTERED")
"""The result of ``prepare`` for a record that the aggregation's condition leaves out."""
SKIPPED = _Mark("SKIPPED")
"""The argument of a record that one aggregate's condition leaves out."""


class Aggregation(Protocol):
    """The aggregation of a window's records."""

    subtracts: bool
    """A record can be taken out of an accumulator."""
    linear: bool
    """Panes may hold differences (see :class:`Aggregator`)."""
    ordered: bool
    """The order of arrival may show in the result."""

    def prepare(self, value: Any) -> Prepared:
        """The part of a record that is aggregated; FILTERED when it is left out. RecordError for
        unusable values."""

    def create(self) -> Any:
        """The accumulator of an empty window."""

    def add_many(self, acc: Any, prepared: Sequence[Prepared], timestamps: Sequence[int]) -> Any:
        """The accumulator with records added (the argument may be changed)."""

    def merge(self, acc: Any, other: Any) -> Any:
        """Both together; ``other`` is neither changed nor kept."""

    def running(self, acc: Any, others: Sequence[Any]) -> tuple[Any, list[Any]]:
        """The accumulator with each of ``others`` merged in turn, and the result after each."""

    def subtract(self, acc: Any, prepared: Prepared, timestamp: int) -> Any:
        """Without one record."""

    def result(self, acc: Any) -> Any:
        """The contents of a pane."""


@dataclass(frozen=True, slots=True)
class Named:
    """One output field: ``evaluate`` gives the argument (None: the whole value), ``condition``
    filters.

    ``argument`` is the argument as written; parts that read the same in the same way share its
    value. ``skips_null``: a record whose argument is null is left out.
    """

    name: str
    aggregator: Aggregator[Any]
    argument: str = ""
    evaluate: Evaluate | None = None
    condition: Evaluate | None = None
    skips_null: bool = False


class NamedAggregation:
    """A dict of results by name. The accumulator is the list of the aggregates' accumulators."""

    def __init__(self, parts: Sequence[Named], condition: Evaluate | None = None) -> None:
        self.parts = tuple(parts)
        self.subtracts = all(part.aggregator.subtracts for part in parts)
        self.linear = all(part.aggregator.linear for part in parts)
        self.ordered = any(part.aggregator.ordered for part in parts)
        self._condition = condition
        self._readers = [_reader(part, self.parts) for part in parts]
        self._only = self._readers[0] if len(self._readers) == 1 else None

    def prepare(self, value: Any) -> Prepared:
        if self._condition is not None and not self._condition(value):
            return FILTERED
        try:
            if self._only is not None:
                return [self._only(value, {})]
            cache: dict[_Reading, Any] = {}
            return [read(value, cache) for read in self._readers]
        except RecordError as ex:
            ex.aggregate = self._cannot_use(value)
            raise

    def _cannot_use(self, value: Any) -> str:
        """The name of the first aggregate that cannot use a value."""
        for part, read in zip(self.parts, self._readers, strict=True):
            try:
                read(value, {})
            except RecordError:
                return part.name
        return ""

    def create(self) -> list[Any]:
        return [part.aggregator.create() for part in self.parts]

    def add_many(
        self, acc: list[Any], prepared: Sequence[Prepared], timestamps: Sequence[int]
    ) -> list[Any]:
        if len(prepared) == 1:
            return self._add(acc, prepared[0], timestamps[0])
        for i, (part, column) in enumerate(
            zip(self.parts, zip(*prepared, strict=True), strict=False)
        ):
            times = timestamps
            if part.condition is not None or part.skips_null:
                times = [
                    t
                    for argument, t in zip(column, timestamps, strict=True)
                    if argument is not SKIPPED
                ]
                column = tuple(argument for argument in column if argument is not SKIPPED)
            if column:
                acc[i] = part.aggregator.add_many(acc[i], column, times)
        return acc

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        return [
            part.aggregator.merge(a, b) for part, a, b in zip(self.parts, acc, other, strict=True)
        ]

    def running(self, acc: list[Any], others: Sequence[list[Any]]) -> tuple[list[Any], list[Any]]:
        merged = []
        results: list[dict[str, Any]] = [{} for _ in others]
        for part, own, column in zip(self.parts, acc, zip(*others, strict=True), strict=False):
            whole, values = part.aggregator.running(own, column)
            merged.append(whole)
            for row, value in zip(results, values, strict=True):
                row[part.name] = value
        return (merged, results) if others else (acc, [])

    def subtract(self, acc: list[Any], prepared: Prepared, timestamp: int) -> list[Any]:
        return [
            a if argument is SKIPPED else part.aggregator.subtract(a, argument, timestamp)
            for part, a, argument in zip(self.parts, acc, prepared, strict=True)
        ]

    def result(self, acc: list[Any]) -> dict[str, Any]:
        return {
            part.name: part.aggregator.result(a) for part, a in zip(self.parts, acc, strict=True)
        }

    def _add(self, acc: list[Any], arguments: list[Any], timestamp: int) -> list[Any]:
        for i, argument in enumerate(arguments):
            if argument is not SKIPPED:
                acc[i] = self.parts[i].aggregator.add(acc[i], argument, timestamp)
        return acc


ACCUMULATOR = "acc"
"""The field of the accumulator in the records of partial aggregations."""


class PartialAggregation(NamedAggregation):
    """Its result is the accumulator itself, to be merged by a :class:`FinalAggregation` of the same
    parts. It travels as bytes: some accumulators have keys that no record may have, and nothing on
    the way reads them."""

    def result(self, acc: list[Any]) -> dict[str, Any]:
        return {ACCUMULATOR: WHOLE.encode(acc)}

    def running(self, acc: list[Any], others: Sequence[list[Any]]) -> tuple[list[Any], list[Any]]:
        return one_by_one(self, acc, others)


class FinalAggregation(NamedAggregation):
    """Its records are the results of a :class:`PartialAggregation`."""

    def __init__(self, parts: Sequence[Named]) -> None:
        super().__init__(parts)
        self.subtracts = False

    def prepare(self, value: Any) -> Prepared:
        return WHOLE.decode(value[ACCUMULATOR])

    def add_many(
        self, acc: list[Any], prepared: Sequence[Prepared], timestamps: Sequence[int]
    ) -> list[Any]:
        for other in prepared:
            acc = self.merge(acc, other)
        return acc


_Reading = tuple[str, bool]
"""The field or expression as written, and whether a record must have it."""
_Reader = Callable[[Any, dict[_Reading, Any]], Any]
"""(value, arguments read so far) -> the checked argument of one aggregate, or SKIPPED."""


def _reader(part: Named, parts: Sequence[Named]) -> _Reader:
    """The fastest function that reads one aggregate's argument: it runs for every record."""
    shared = sum(_reading(other) == _reading(part) for other in parts) > 1
    read = _shared_reader(part) if shared and part.evaluate is not None else _own_reader(part)
    condition = part.condition
    if condition is None:
        return read
    return lambda value, cache: read(value, cache) if condition(value) else SKIPPED


def _reading(part: Named) -> _Reading:
    """Aggregates for which this is equal may share the value. ``count`` finds None where a record
    has no such field; for all other aggregates the same record is a dead letter."""
    return part.argument, part.aggregator.needs_argument


def _check_of(part: Named) -> Callable[[Any, str], Any]:
    check = part.aggregator.check
    if not part.skips_null:
        return check
    return lambda value, name: SKIPPED if value is None else check(value, name)


def _own_reader(part: Named) -> _Reader:
    evaluate, check, name = part.evaluate, _check_of(part), part.argument
    if evaluate is not None:
        return lambda value, cache: check(evaluate(value), name)
    if part.aggregator.needs_argument:
        return lambda value, cache: check(value, name)
    return lambda value, cache: 1


def _shared_reader(part: Named) -> _Reader:
    evaluate, check, name = part.evaluate, _check_of(part), part.argument
    reading = _reading(part)

    def read(value: Any, cache: dict[_Reading, Any]) -> Any:
        if reading not in cache:
            cache[reading] = evaluate(value) if evaluate is not None else value
        return check(cache[reading], name)

    return read


class SingleAggregation:
    """One aggregator over whole values (or ``evaluate`` of them); the result stands alone."""

    def __init__(
        self, aggregator: Aggregator[Any], evaluate: Evaluate | None = None, name: str = ""
    ) -> None:
        read = _own_reader(Named(name, aggregator, name, evaluate))
        self._read = read
        self.subtracts = aggregator.subtracts
        self.linear = aggregator.linear
        self.ordered = aggregator.ordered
        self.create = aggregator.create
        self.merge = aggregator.merge
        self.subtract = aggregator.subtract
        self.result = aggregator.result
        self.add_many = aggregator.add_many
        self.running = aggregator.running

    def prepare(self, value: Any) -> Prepared:
        return self._read(value, {})


class Collected(SingleAggregation):
    """No aggregate: a pane holds the values themselves, in order of arrival."""

    def __init__(self) -> None:
        super().__init__(Collect())


class Buffered:
    """The full-buffer form: a pane holds its records as [value, timestamp], in order of arrival,
    for user code (``process_window``) to work on. ``condition`` filters."""

    subtracts = True
    linear = False
    ordered = True

    def __init__(self, condition: Evaluate | None = None) -> None:
        self._condition = condition

    def prepare(self, value: Any) -> Prepared:
        return FILTERED if self._condition is not None and not self._condition(value) else value

    def create(self) -> list[Any]:
        return []

    def add_many(
        self, acc: list[Any], prepared: Sequence[Prepared], timestamps: Sequence[int]
    ) -> list[Any]:
        acc.extend(
            [value, timestamp] for value, timestamp in zip(prepared, timestamps, strict=True)
        )
        return acc

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        acc.extend(other)
        return acc

    def running(self, acc: list[Any], others: Sequence[list[Any]]) -> tuple[list[Any], list[Any]]:
        return one_by_one(self, acc, others)

    def subtract(self, acc: list[Any], prepared: Prepared, timestamp: int) -> list[Any]:
        if [prepared, timestamp] in acc:
            acc.remove([prepared, timestamp])
        return acc

    def result(self, acc: list[Any]) -> list[Any]:
        return list(acc)


class Growing(Buffered):
    """The full-buffer form of windows from which nothing is removed: of a pane only the number of
    its records is kept, as these are the first records in its bounds."""
