"""A user's own aggregator as windows use it: the values it gets and returns are not shared.

An accumulator is the state of a window. It stays an object while it is cached and comes back from
its bytes after a crash, so it must be plain data; and no two windows may share one, even if
``create`` and ``merge`` return the same object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.aggregates.base import Aggregator, one_by_one
from millwheel.core.aggregates.plain_data import PLAIN, copied, is_plain
from millwheel.errors import RecordError

_SHOWN = 80  # characters of an accumulator in an error


class OwnAggregator(Aggregator[Any]):
    """``wrapped`` with its promises kept: arguments and results are copies, accumulators are plain
    data."""

    def __init__(self, wrapped: Aggregator[Any]) -> None:
        self.wrapped = wrapped
        self.subtracts = wrapped.subtracts
        self.linear = wrapped.linear
        self.ordered = wrapped.ordered
        self.needs_argument = wrapped.needs_argument

    def growing(self) -> Aggregator[Any]:
        made = self.wrapped.growing()
        return self if made is self.wrapped else OwnAggregator(made)

    def check(self, value: Any, name: str) -> Any:
        return self.wrapped.check(copied(value), name)

    def create(self) -> Any:
        return copied(self._plain(self.wrapped.create(), "create"))

    def add(self, acc: Any, value: Any, timestamp: int) -> Any:
        return self._plain(self.wrapped.add(acc, copied(value), timestamp), "add")

    def add_many(self, acc: Any, values: Sequence[Any], timestamps: Sequence[int]) -> Any:
        values = (
            values if PLAIN.issuperset(map(type, values)) else [copied(value) for value in values]
        )
        return self._plain(self.wrapped.add_many(acc, values, timestamps), "add")

    def merge(self, acc: Any, other: Any) -> Any:
        return self._plain(self.wrapped.merge(acc, copied(other)), "merge")

    def running(self, acc: Any, others: Sequence[Any]) -> tuple[Any, list[Any]]:
        return one_by_one(self, acc, others)

    def subtract(self, acc: Any, value: Any, timestamp: int) -> Any:
        return self._plain(self.wrapped.subtract(acc, copied(value), timestamp), "subtract")

    def result(self, acc: Any) -> Any:
        return copied(self.wrapped.result(copied(acc)))

    def _plain(self, acc: Any, call: str) -> Any:
        if is_plain(acc):
            return acc
        raise RecordError(
            f"{type(self.wrapped).__name__}.{call} gave an accumulator that is not plain data:"
            f" {type(acc).__name__} {acc!r:.{_SHOWN}}; make it of numbers, text, lists and dicts (a"
            " list or a dict for a set, text for a Decimal), and convert it in result"
        )
