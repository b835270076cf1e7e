"""Aggregates that choose among values."""

from __future__ import annotations

from tests.unit.core.aggregates.test_base import _make, _over


def test_first_and_last_are_by_time_and_then_by_arrival() -> None:
    rows = [("b", 5), ("c", 9), ("a", 1), ("a2", 1), ("d", 9)]
    first, last = _make("first"), _make("last")
    assert first.result(_over(first, rows)) == "a"
    assert last.result(_over(last, rows)) == "d"


def test_top_k_keeps_the_largest() -> None:
    made = _make("top_k")
    assert made.result(_over(made, [(v, 0) for v in (3, 9, 1, 9, 4)])) == [9, 9, 4]
