from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.grouping.hot_keys import Epoch, HotKeys, counted_of
from millwheel.errors import InvariantError

NODE = "n"


def machine(*epochs: Epoch, position: int = 0, instances: int = 2) -> HotKeys:
    return HotKeys({NODE: instances}, epochs, position)


def epoch(first: int, last: int, *keys: str) -> Epoch:
    return Epoch(first, last, {NODE: frozenset(keys)})


def test_nothing_is_hot_before_anything_was_counted() -> None:
    hot = machine()
    assert hot.unknown
    assert hot.extended(5) == epoch(0, 5)
    assert not hot.unknown
    assert hot.are_hot(NODE, ["a"] * 3, [1, 2, 5]) == [False] * 3


def test_a_key_becomes_hot_in_the_next_epoch_only() -> None:
    hot = machine()
    hot.extended(45)
    hot.count(NODE, ["a"] * 30)
    assert hot.extended(45) is None
    assert hot.extended(46) == epoch(45, 46 + 45, "a")
    assert hot.are_hot(NODE, ["a", "a", "b", "a"], [45, 46, 47, 48]) == [False, True, False, True]


def test_epochs_begin_with_one_read_and_grow_to_eight() -> None:
    hot = machine()
    ends = [hot.extended(position) for position in range(10, 500, 10)]
    reads = [(found.last - found.first) // 10 for found in ends if found is not None]
    assert reads == [1, 2, 4, 8, 8, 8, 8, 8, 8]


def test_too_little_counted_leaves_the_table_as_it_was() -> None:
    hot = machine(epoch(0, 9, "a"))
    hot.count(NODE, ["b"] * 10)
    assert hot.extended(10) == epoch(9, 10, "a")


def test_a_hot_key_stays_hot_to_half_of_the_threshold_and_no_further() -> None:
    """With two instances a key is hot above a tenth."""

    def next_table(of_a: int) -> frozenset[str]:
        hot = machine(epoch(0, 9, "a"))
        hot.count(NODE, ["a"] * of_a + [f"k{i}" for i in range(100 - of_a)])
        found = hot.extended(10)
        assert found is not None
        return found.tables[NODE]

    assert next_table(7) == {"a"}
    assert next_table(4) == frozenset()
    hot = machine(epoch(0, 9))
    hot.count(NODE, ["a"] * 7 + [f"k{i}" for i in range(93)])
    assert hot.extended(10) == epoch(9, 10)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 11), st.lists(st.sampled_from("abc")))
def test_a_new_owner_decides_nothing_about_what_an_earlier_one_may_have_sent(
    reads: list[int], committed: int, other: list[str]
) -> None:
    """Whatever it counts, and however it divides the input into reads."""
    first, kept, end, ends = machine(), [], 0, [0]
    for read in reads:
        end += read
        ends.append(end)
        if (decided := first.extended(end)) is not None:
            kept.append(decided)
        first.count(NODE, ["a"] * read)
    positions = list(range(1, end + 1))
    begin = ends[min(committed, len(reads) - 1)]
    again = machine(*kept, position=begin)
    for position in positions[begin:]:
        again.count(NODE, other)
        again.extended(position)
    keys = ["a"] * (end - begin)
    assert again.are_hot(NODE, keys, positions[begin:]) == first.are_hot(NODE, keys, positions[begin:])


def test_a_record_that_no_epoch_has_is_an_error_and_not_a_guess() -> None:
    hot = machine(epoch(10, 20, "a"))
    with pytest.raises(InvariantError, match="position 21 lies in no epoch"):
        hot.are_hot(NODE, ["a", "a"], [20, 21])
    with pytest.raises(InvariantError, match="position 10 lies in no epoch"):
        hot.are_hot(NODE, ["a"], [10])


def test_epochs_are_forgotten_once_applied_but_for_the_last() -> None:
    hot = machine(epoch(0, 9), epoch(9, 20), epoch(20, 30))
    assert hot.forget(8) == []
    assert hot.forget(9) == [epoch(0, 9)]
    assert hot.forget(99) == [epoch(9, 20)]
    assert hot.forget(99) == []
    assert hot.extended(30) is None


def test_stretches_have_the_rows_of_each_epoch() -> None:
    hot = machine(epoch(0, 9), epoch(9, 20, "a"), epoch(20, 30, "b"))
    found = list(hot.stretches(NODE, np.array([3, 9, 22, 30])))
    assert found == [(frozenset(), slice(0, 2)), (frozenset("b"), slice(2, 4))]


@pytest.mark.parametrize("records", [0, 1, 1_999, 2_000, 5_000, 100_000])
def test_a_long_read_is_counted_in_part(records: int) -> None:
    counted = range(records)[counted_of(records)]
    assert len(counted) <= 2_000
    assert len(counted) >= min(records, 1_000)
