"""Windows of columns of timestamps are those of each timestamp."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.arrays import (
    assign_array,
    count_windows,
    sessions_of,
    stated_array,
)
from millwheel.core.columns.batch import key_column, key_list
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.windows import (
    Cumulative,
    Global,
    OfInput,
    SessionPieces,
    Sessions,
    Sliding,
    Tumbling,
    WindowFunction,
)
from millwheel.errors import RecordError

functions = st.sampled_from(
    [
        Tumbling(10),
        Tumbling(7, 3),
        Tumbling("1d", time_zone="Europe/Berlin"),
        Tumbling("3d", time_zone="America/Havana"),
        Sliding(10, 5),
        Sliding(10, 4, 1),
        Sliding(9, 9),
        Cumulative(20, 5, 2),
        Cumulative("1d", "6h", time_zone="Europe/Berlin"),
        Sessions(7),
        Global(),
    ]
)


@given(
    function=functions,
    times=st.lists(st.one_of(st.integers(-100, 100), st.integers(0, 2 * 10**15)), max_size=30),
)
def test_arrays_of_timestamps_get_the_same_windows(
    function: WindowFunction, times: list[int]
) -> None:
    assigned = assign_array(function, np.array(times, dtype=np.int64))
    found: list[list[tuple[int, int]]] = [[] for _ in times]
    for row, start, end in zip(assigned.rows, assigned.starts, assigned.ends, strict=True):
        found[int(row)].append((int(start), int(end)))
    assert found == [[tuple(window) for window in function.assign(t)] for t in times]
    assert list(assigned.rows) == sorted(assigned.rows)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(-20, 40)), max_size=30
    ),
    st.integers(1, 9),
    st.booleans(),
)
def test_sessions_of_columns_are_those_that_the_windows_of_each_key_merge_to(
    made: list[tuple[int, str, int]], gap: int, pieces: bool
) -> None:
    numbers, texts, times = ([each[part] for each in made] for part in range(3))
    frame = pl.DataFrame({"n": numbers, "t": texts}, schema={"n": pl.Int64, "t": pl.String})
    function = SessionPieces(gap) if pieces else Sessions(gap)
    for keys, known in (
        (frame["n"], numbers),
        (frame.to_struct("k"), list(zip(numbers, texts, strict=True))),
    ):
        assigned = sessions_of(keys, np.array(times, np.int64), gap, pieces)
        assert assigned.rows.tolist() == list(range(len(made)))
        for index, (key, at) in enumerate(zip(known, times, strict=True)):
            own = [
                function.assign(t)[0] for other, t in zip(known, times, strict=True) if other == key
            ]
            [group] = [group for group in function.merge(own) if function.assign(at)[0] in group]
            span = (group[0].start, max(each.end for each in group))
            assert (assigned.starts[index], assigned.ends[index]) == span


def test_a_session_does_not_end_behind_all_times() -> None:
    assigned = sessions_of(pl.Series([1]), np.array([MAX_TIME - 3]), 2**60)
    assert assigned.ends.tolist() == [MAX_TIME]


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
    had = {
        key: (before + position) % size
        for position, key in enumerate(dict.fromkeys(key_list(keys)))
    }

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


bounds = st.tuples(st.none() | st.integers(-3, 3), st.none() | st.integers(-3, 3))


@given(drawn=st.lists(bounds, max_size=6))
def test_windows_of_results_are_those_of_each_record_or_none_of_a_column(
    drawn: list[tuple[int | None, int | None]],
) -> None:
    function = OfInput()
    rows = [{"window_start": start, "window_end": end} for start, end in drawn]
    schema = {"window_start": pl.Int64, "window_end": pl.Int64}
    assigned = stated_array(function, pl.DataFrame(rows, schema))
    try:
        windows = [function.window_of(row) for row in rows]
    except RecordError:
        assert assigned is None
        return
    assert assigned is not None
    assert list(zip(assigned.starts.tolist(), assigned.ends.tolist(), strict=True)) == windows
    assert assigned.rows.tolist() == [*range(len(rows))]


def test_bounds_that_are_not_whole_numbers_have_no_column() -> None:
    frame = pl.DataFrame({"window_start": [1.0], "window_end": [2.0]})
    assert stated_array(OfInput(), frame) is None
