"""Aggregates of a pipeline in Python."""

from __future__ import annotations

from millwheel import (
    agg,
)


def test_aggregates_know_their_functions() -> None:
    from millwheel.core.aggregates.functions import FUNCTIONS

    assert set(agg.__all__) - {"Aggregate", "own"} == set(FUNCTIONS)
