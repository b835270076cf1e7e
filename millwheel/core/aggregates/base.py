"""Aggregators: how many records become one result.

An accumulator is plain data that msgpack can carry (numbers, text, bytes, lists, dicts), because it
*is* the state of a window; only the sets of ``count_distinct`` have a stored form of their own
(stored_form.py). ``add`` and ``merge`` return the accumulator to use from then on, and may change
their first argument. Merging must be associative, and must not depend on how records were cut into
bundles: the built-in ones give the same accumulator for every order of the same records (except
``collect``, and equal timestamps in ``first`` and ``last``). Therefore slices, sessions, columns
and recovery all end at the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from millwheel.errors import RecordError

if TYPE_CHECKING:
    from millwheel.core.aggregates.columns import Argument, ColumnAggregate

Acc = TypeVar("Acc")
NUMBERS = ("int", "float")
VALUES = ("int", "float", "str")
KINDS = ("int", "float", "str", "bool")


class Aggregator(Generic[Acc]):
    """Base of the built-in aggregators and of a user's own.

    Only ``create``, ``add``, ``merge`` and ``result`` are needed. One that can also ``subtract``
    sets ``subtracts = True``; without it, a computation that receives retractions keeps its
    windows' records.
    """

    subtracts = False
    """True when :meth:`subtract` exactly undoes :meth:`add`."""
    linear = False
    """True when the results of parts add up to the result of the whole, so that panes may hold
    differences."""
    ordered = True
    """False when the result does not depend on the order of the records. Only sessions read it:
    they remember the order if it is true."""
    needs_argument = True
    """False for aggregators that only look at the record's existence (``count``)."""
    of_rows = False
    """True for aggregators of whole records, ordered by the expressions ``orders``: their argument
    is [the values of these, record]."""
    orders: tuple[str, ...] = ()

    def growing(self) -> Aggregator[Any]:
        """The form for records that are never taken back: perhaps a smaller one, with the same
        results."""
        return self

    def check(self, value: Any, name: str) -> Any:
        """The argument in the form ``add`` expects, or RecordError naming the field ``name`` and
        the value."""
        return value

    def create(self) -> Acc:
        """The accumulator of no records."""
        raise TypeError(f"{type(self).__name__} must define create(self)")

    def add(self, acc: Acc, value: Any, timestamp: int) -> Acc:
        """One more record, of which ``value`` is the argument (µs ``timestamp``)."""
        raise TypeError(f"{type(self).__name__} must define add(self, acc, value, timestamp)")

    def add_many(self, acc: Acc, values: Sequence[Any], timestamps: Sequence[int]) -> Acc:
        """Several records in order; worth defining where a bundle is cheaper than its records."""
        add = self.add
        for value, timestamp in zip(values, timestamps, strict=True):
            acc = add(acc, value, timestamp)
        return acc

    def merge(self, acc: Acc, other: Acc) -> Acc:
        """Both accumulators together; ``other`` holds the later records where the order matters.
        ``other`` is neither changed nor kept: the result shares no list or dict with it."""
        raise TypeError(f"{type(self).__name__} must define merge(self, acc, other)")

    def running(self, acc: Acc, others: Sequence[Acc]) -> tuple[Acc, list[Any]]:
        """The accumulator with each of ``others`` merged in turn, and the result after each. Worth
        defining where many are cheaper together."""
        return one_by_one(self, acc, others)

    def subtract(self, acc: Acc, value: Any, timestamp: int) -> Acc:
        """Without one record that was added before."""
        raise TypeError(f"{type(self).__name__} cannot subtract; the window's records must be kept")

    def result(self, acc: Acc) -> Any:
        """The contents of the pane. Does not change the accumulator."""
        return acc


class _Merges(Protocol):
    def merge(self, acc: Any, other: Any) -> Any: ...

    def result(self, acc: Any) -> Any: ...


def one_by_one(merges: _Merges, acc: Any, others: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The results of ``running``, by merging one after the other."""
    results = []
    for other in others:
        acc = merges.merge(acc, other)
        result = merges.result(acc)
        results.append(deepcopy(result) if result is acc else result)  # the next one may change it
    return acc, results


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """A built-in aggregate function: ``make(options)`` builds its aggregator, ``options`` are the
    names of its settings.

    ``columns(column, argument, aggregator)`` builds its column form, if it has one, for arguments
    of the ``kinds`` of fields of which it takes every value that columns hold. ``aggregator`` is
    the row form, with its settings.

    ``of_rows``: it takes whole records, and the text behind its name is its option ``by``.

    ``gives`` and ``keeps`` are texts of docs/pipeline.md: the result, and the state of one key and
    window. With the settings of ``example`` it is drawn by ``tests/search``.
    """

    make: Callable[[Mapping[str, Any]], Aggregator[Any]]
    options: tuple[str, ...] = ()
    columns: Callable[[str, Argument, Any], ColumnAggregate] | None = None
    kinds: tuple[str, ...] = NUMBERS
    _: KW_ONLY
    gives: str
    keeps: str
    example: Mapping[str, Any] = field(default_factory=dict)
    of_rows: bool = False


def check_fits(function: str, name: str, value: Any) -> Any:
    """The value, unless it is a whole number that no state can hold: an expression may make one."""
    if type(value) is int and not -(2**63) <= value < 2**64:
        raise wrong(function, name, value, "whole numbers of at most 64 bits")
    return value


def wrong(function: str, name: str, value: Any, expected: str) -> RecordError:
    """The error of a value that a function cannot use."""
    where = f"of field {name!r} " if name else ""
    text = repr(value) if len(repr(value)) <= 100 else repr(value)[:97] + "..."
    return RecordError(f"{function} {where}needs {expected}, not {type(value).__name__} {text}")
