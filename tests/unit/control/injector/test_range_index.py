"""The watermarks of all shards of a node, by their ranges, through splits and merges."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millwheel.control.injector.range_index import NOWHERE, RangeIndex
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import SPACE, KeyRange
from millwheel.core.model.times import IDLE_TIME, MIN_TIME

CUTS = st.sets(st.integers(1, 9), max_size=4)


def index_of(cuts: set[int], token: int = 1, prefix: str = "s") -> RangeIndex:
    bounds = [0, *sorted(cuts), 10]
    rows = itertools.pairwise(bounds)
    entries = [
        ShardEntry(f"{prefix}-{lo}", KeyRange(lo * SPACE // 10, hi * SPACE // 10), "w", token)
        for lo, hi in rows
    ]
    return RangeIndex.silent(tuple(reversed(entries)))  # type: ignore[arg-type]


def longs(*values: int) -> Any:
    return np.array(values, np.int64)


@given(CUTS, CUTS, st.data())
def test_every_part_of_the_space_inherits_the_lowest_that_stood_anywhere_in_it(
    before: set[int], after: set[int], data: Any
) -> None:
    old, new = index_of(before), index_of(after, 2, "t")
    stamps = data.draw(
        st.lists(st.integers(0, 99), min_size=len(old.entries), max_size=len(old.entries))
    )
    old.rise(np.arange(len(stamps)), longs(*stamps))
    new.inherit(old)
    for row, entry in enumerate(new.entries):
        there = [
            stamps[position]
            for position, other in enumerate(old.entries)
            if other.range.lo < entry.range.hi and entry.range.lo < other.range.hi
        ]
        assert new.values[row] == min(there)
        assert new.reported[row]


def test_reports_of_a_former_owner_are_believed_nowhere() -> None:
    index = index_of({5}, token=3)
    rows = index.find(["s-0", "s-5", "gone"])
    assert rows.tolist() == [0, 1, NOWHERE]
    assert index.valid_rows(rows, longs(3, 2, 3)).tolist() == [0, NOWHERE, NOWHERE]
    assert RangeIndex.silent(()).valid_rows(longs(0), longs(1)).tolist() == [NOWHERE]


def test_values_only_rise_and_those_that_were_lower_are_counted() -> None:
    index = index_of({5})
    assert index.rise(longs(0, 1), longs(10, 20)) == 0
    assert index.rise(longs(0, 1), longs(5, 30)) == 1
    assert index.values.tolist() == [10, 30]
    assert index.lowest_above(None) == 10
    assert index.lowest_above(10) is None


def test_a_shard_that_was_idle_starts_anew_and_may_be_lower() -> None:
    index = index_of(set())
    index.rise(longs(0), longs(IDLE_TIME))
    assert index.rise(longs(0), longs(7)) == 0
    assert index.values.tolist() == [7]


def test_when_all_are_idle_the_furthest_silence_counts() -> None:
    index = index_of({5})
    index.rise(longs(0, 1), longs(IDLE_TIME, IDLE_TIME))
    index.idle[:] = longs(4, 9)
    assert index.silent_up_to == 9
    assert index.lowest_above(None) == 9
    index.rise(longs(0), longs(2))
    assert index.silent_up_to is None
    assert index_of(set()).values.tolist() == [MIN_TIME]
