"""Columns and rows agree on every value, and the search that says so would notice if they did
not."""

from __future__ import annotations

import pytest

from tests.search.forms.mistakes import MISTAKES
from tests.search.forms.running import failure


@pytest.mark.parametrize("seed", [1, 4, 6, 7])
def test_a_case_of_odd_values_is_the_same_in_columns_and_in_rows(seed: int) -> None:
    assert not failure(seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [50_000, *(pytest.param(first, marks=pytest.mark.long) for first in (50_020, 50_040))]
)
def test_cases_of_odd_values_are_the_same_in_columns_and_in_rows(first: int) -> None:
    for seed in range(first, first + 20):
        assert not failure(seed), f"python -m tests.search.forms --seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_deliberate_mistake_is_caught(name: str) -> None:
    make, seeds = MISTAKES[name]
    with make():
        assert any(map(failure, seeds)), f"{name}: not in {seeds}"
