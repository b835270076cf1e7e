"""A user's own aggregator: its accumulators are plain data, and nobody shares them."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.aggregates.base import Aggregator
from millwheel.core.aggregates.own import OwnAggregator
from millwheel.errors import RecordError

EMPTY: dict[str, Any] = {"seen": []}


class Careless(Aggregator[Any]):
    """Shares whatever it can."""

    subtracts = True

    def create(self) -> Any:
        return EMPTY

    def add(self, acc: Any, value: Any, timestamp: int) -> Any:
        acc["seen"].append(value)
        if isinstance(value, list):
            value.append("changed")
        return {1} if value == "set" else acc

    def merge(self, acc: Any, other: Any) -> Any:
        other["seen"] += acc["seen"]
        return other

    def subtract(self, acc: Any, value: Any, timestamp: int) -> Any:
        acc["seen"].remove(value)
        return acc

    def result(self, acc: Any) -> Any:
        acc["seen"].sort(key=str)
        return acc


def test_what_it_shares_is_its_own() -> None:
    own = OwnAggregator(Careless())
    first, second, value = own.create(), own.create(), [1]
    first = own.add(first, value, 0)
    assert value == [1]
    assert own.add_many(second, [2, 3], [0, 0]) == {"seen": [2, 3]}
    assert EMPTY == {"seen": []}
    merged = own.merge(own.add(own.create(), 1, 0), second)
    assert second == {"seen": [2, 3]}
    assert merged == {"seen": [2, 3, 1]}
    result = own.result(merged)
    assert result == {"seen": [1, 2, 3]}
    assert merged == {"seen": [2, 3, 1]}
    assert own.subtract(merged, 3, 0) == {"seen": [2, 1]}
    assert own.subtracts


def test_an_accumulator_that_would_not_come_back_is_refused_with_a_cure() -> None:
    own = OwnAggregator(Careless())
    with pytest.raises(
        RecordError, match=r"Careless\.add gave an accumulator .*set.*list or a dict for a set"
    ):
        own.add(own.create(), "set", 0)
    with pytest.raises(RecordError, match=r"Careless\.add"):
        own.add_many(own.create(), ["a", "set"], [0, 0])


def test_running_results_are_not_changed_by_the_next() -> None:
    own = OwnAggregator(Careless())
    parts = [own.add(own.create(), n, 0) for n in (2, 1)]
    whole, results = own.running(own.create(), parts)
    assert results == [{"seen": [2]}, {"seen": [1, 2]}]
    assert sorted(whole["seen"]) == [1, 2]
