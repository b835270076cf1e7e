"""Numbers of keys: each key has one, and others with it find it."""

from __future__ import annotations

import polars as pl
import pytest

from millwheel.core.columns.batch import key_column, key_list
from millwheel.core.columns.state.codes import KeyCodes

FAR = 2**63 - 1


@pytest.mark.parametrize(
    ("keys", "others"),
    [
        ([pl.Series("a", [5, -7, 5])], [pl.Series("a", [-7, 6, 5, FAR])]),
        ([pl.Series("a", [FAR, -FAR, FAR])], [pl.Series("a", [0, FAR, -FAR])]),
        ([pl.Series("a", ["x", "y", "x"])], [pl.Series("a", ["", "y", "x"])]),
        (
            [pl.Series("a", [1, 1, 2]), pl.Series("b", [3, 4, 3])],
            [pl.Series("a", [2, 2, 1, 9]), pl.Series("b", [3, 4, 4, 3])],
        ),
    ],
    ids=["near", "far", "text", "pairs"],
)
def test_each_key_has_a_number_by_which_others_find_it(
    keys: list[pl.Series], others: list[pl.Series]
) -> None:
    own, more = key_column(keys), key_column(others)
    codes = KeyCodes(own)
    numbers = dict(zip(key_list(own), codes.of_records.tolist(), strict=True))
    assert sorted(numbers.values()) == list(range(codes.count))
    rows, found = codes.among(more)
    expected = [(at, numbers[key]) for at, key in enumerate(key_list(more)) if key in numbers]
    assert list(zip(rows.tolist(), found.tolist(), strict=True)) == expected
