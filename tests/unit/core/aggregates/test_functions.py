"""Aggregate functions by name."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.aggregates.base import Aggregator
from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.aggregates.own import OwnAggregator


@pytest.mark.parametrize(
    ("function", "options", "fix"),
    [
        ("medain", {}, "there are approx_count_distinct, collect, count"),
        ("sum", {"k": 3}, "sum has no option 'k'; it has none"),
        ("top_k", {}, "top_k needs `k`"),
        ("top_k", {"k": 0}, "whole number of at least 1"),
        ("quantile", {}, "quantile needs `q`"),
        ("quantile", {"q": 95}, "between 0 and 1"),
        ("quantiles", {"q": 0.5}, "a list"),
        ("quantile", {"q": 0.5, "accuracy": 2.0}, "a share from"),
        ("variance", {"population": "yes"}, "must be true"),
        ("approx_count_distinct", {"lg_k": 30}, "from 4 to 21"),
        ("mine:Top", {}, "cannot be loaded here"),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(function: str, options: dict[str, Any], fix: str) -> None:
    with pytest.raises(ValueError, match=fix):
        make_aggregator(function, options)


def test_a_class_of_ones_own_is_made_with_its_options() -> None:
    class Longest(Aggregator[str]):
        def __init__(self, least: int = 0) -> None:
            self.least = least

    made = make_aggregator("mine:Longest", {"least": 3}, lambda name: Longest)
    assert isinstance(made, OwnAggregator)
    assert isinstance(made.given, Longest)
    assert made.given.least == 3
    with pytest.raises(ValueError, match="derive it from millwheel"):
        make_aggregator("mine:dict", {}, lambda name: dict)
    with pytest.raises(TypeError, match="Longest must define create"):
        made.create()
