"""Count windows of columns are those of records one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.batch import key_column, key_list
from millwheel.core.columns.counted import count_windows
from millwheel.core.model.keys import Key

pairs = st.tuples(st.integers(-2, 2), st.sampled_from(["a", "ä", ""]))


@pytest.mark.parametrize("fields", [1, 2])
@given(drawn=st.lists(pairs, max_size=30), size=st.integers(1, 5), before=st.integers(0, 4))
def test_each_window_is_a_run_of_records_of_one_key(
    fields: int, drawn: list[tuple[int, str]], size: int, before: int
) -> None:
    parts = [
        pl.Series("n", [pair[0] for pair in drawn], pl.Int64),
        pl.Series("s", [pair[1] for pair in drawn], pl.Utf8),
    ]
    keys = key_column(parts[:fields])
    had = {key: (before + position) % size for position, key in enumerate(dict.fromkeys(key_list(keys)))}

    def filled(asked: Sequence[Key]) -> list[int]:
        assert sorted(asked, key=repr) == sorted(had, key=repr), "each key is asked for once"
        return [had[key] for key in asked]

    counted = count_windows(keys, size, filled)
    found: dict[int, list[int]] = {}
    for row, window in zip(counted.rows.tolist(), counted.windows.tolist(), strict=True):
        found.setdefault(window, []).append(row)
    expected: list[list[int]] = []
    for key, count in had.items():
        rows = [row for row, other in enumerate(key_list(keys)) if other == key]
        cuts = [0, *range(size - count, len(rows), size), len(rows)]
        expected += [rows[start:end] for start, end in pairwise(cuts) if start < end]
    assert [found[window] for window in sorted(found)] == expected
