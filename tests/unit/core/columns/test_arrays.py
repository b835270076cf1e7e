"""Windows of columns of timestamps are those of each timestamp."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.arrays import assign_array
from millwheel.core.windows.windows import (
    Cumulative,
    Global,
    Sliding,
    Tumbling,
    WindowFunction,
)

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
        Global(),
    ]
)


@given(function=functions, times=st.lists(st.one_of(st.integers(-100, 100), st.integers(0, 2 * 10**15)), max_size=30))
def test_arrays_of_timestamps_get_the_same_windows(function: WindowFunction, times: list[int]) -> None:
    assigned = assign_array(function, np.array(times, dtype=np.int64))
    found: list[list[tuple[int, int]]] = [[] for _ in times]
    for row, start, end in zip(assigned.rows, assigned.starts, assigned.ends, strict=True):
        found[int(row)].append((int(start), int(end)))
    assert found == [[tuple(window) for window in function.assign(t)] for t in times]
    assert list(assigned.rows) == sorted(assigned.rows)
