"""Lists of groups are taken apart and put together again, empty ones and nulls among them."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.families.group_lists import gathered, spread

VALUE = st.one_of(st.none(), st.integers(-5, 5))


@given(st.lists(st.lists(VALUE)))
def test_lists_are_put_together_as_they_were_taken_apart(lists: list[list[int | None]]) -> None:
    numbers, values = spread(pl.Series(lists, dtype=pl.List(pl.Int64)))
    expected = [[value for value in mine if value is not None] for mine in lists]
    assert list(zip(numbers.tolist(), values.to_list(), strict=True)) == [
        (number, value) for number, mine in enumerate(expected) for value in mine
    ]
    found = gathered(numbers, values, len(lists))
    assert found.dtype == pl.List(pl.Int64)
    assert found.to_list() == expected


@given(st.lists(st.lists(st.one_of(st.none(), st.lists(VALUE)))))
def test_lists_of_lists_are_taken_apart_to_their_values(
    lists: list[list[list[int | None] | None]],
) -> None:
    numbers, values = spread(pl.Series(lists, dtype=pl.List(pl.List(pl.Int64))))
    expected = [
        (number, value)
        for number, mine in enumerate(lists)
        for part in mine
        for value in part or []
        if value is not None
    ]
    assert list(zip(numbers.tolist(), values.to_list(), strict=True)) == expected


def test_no_group_has_no_list() -> None:
    assert gathered(np.array([], np.int64), pl.Series([], dtype=pl.String), 0).to_list() == []
