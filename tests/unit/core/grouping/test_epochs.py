from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.grouping.catalogue import BY_NUMBER, RULES
from millwheel.core.grouping.epochs import EPOCH_US, Epoch, KeyEpochs, Rule, counted_of
from millwheel.core.grouping.tables import EpochTable, Measured
from millwheel.errors import InvariantError

NODE = "n"
COUNTED = pytest.mark.parametrize("name", sorted(RULES.keys() - BY_NUMBER))


def machine(*epochs: Epoch, position: int = 0, instances: int = 2) -> KeyEpochs:
    return KeyEpochs({NODE: Rule("auto", instances)}, epochs, position)


def epoch(first: int, last: int, *keys: str, number: int = 0) -> Epoch:
    table = EpochTable(number, first + 1, (1.0, 1.0), dict.fromkeys(keys, (0, 1)))
    return Epoch(first, last, {NODE: table})


def test_nothing_is_hot_before_anything_was_counted() -> None:
    hot = machine()
    assert hot.is_empty
    assert hot.extended(5) == [epoch(0, 5)]
    assert not hot.is_empty
    assert hot.are_hot(NODE, ["a"] * 3, [1, 2, 5]) == [False] * 3


def test_a_key_becomes_hot_in_the_next_epoch_only() -> None:
    hot = machine()
    hot.extended(45)
    hot.count(NODE, ["a"] * 30)
    hot.moved(45)
    assert hot.extended(45) == []
    assert hot.extended(46) == [epoch(45, 46 + 45, "a", number=1)]
    assert hot.are_hot(NODE, ["a", "a", "b", "a"], [45, 46, 47, 48]) == [False, True, False, True]


def test_epochs_begin_with_one_read_and_grow_to_eight() -> None:
    hot = machine()
    ends = []
    for position in range(10, 500, 10):
        ends += hot.extended(position)
        hot.moved(position)
    reads = [(found.last - found.first) // 10 for found in ends]
    assert reads == [1, 2, 4, 8, 8, 8, 8, 8, 8]


def test_too_little_counted_leaves_the_table_as_it_was() -> None:
    hot = machine(epoch(0, 9, "a"))
    hot.count(NODE, ["b"] * 10)
    assert hot.extended(10) == [epoch(9, 10, "a")]


def test_a_hot_key_stays_hot_to_half_of_the_threshold_and_no_further() -> None:
    """With two instances a key is hot above a tenth."""

    def next_table(of_a: int) -> set[str]:
        hot = machine(epoch(0, 9, "a"))
        hot.count(NODE, ["a"] * of_a + [f"k{i}" for i in range(100 - of_a)])
        [found] = hot.extended(10)
        return set(found.tables[NODE].routes)

    assert next_table(7) == {"a"}
    assert next_table(4) == set()
    hot = machine(epoch(0, 9))
    hot.count(NODE, ["a"] * 7 + [f"k{i}" for i in range(93)])
    assert hot.extended(10) == [epoch(9, 10, number=1)]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(0, 11),
    st.lists(st.sampled_from("abc")),
)
def test_a_new_owner_decides_nothing_about_what_an_earlier_one_may_have_sent(
    reads: list[int], committed: int, other: list[str]
) -> None:
    """Whatever it counts, and however it divides the input into reads."""
    first, kept, end, ends = machine(), [], 0, [0]
    for read in reads:
        end += read
        ends.append(end)
        kept += first.extended(end)
        first.moved(end)
        first.count(NODE, ["a"] * read)
    positions = list(range(1, end + 1))
    begin = ends[min(committed, len(reads) - 1)]
    again = machine(*kept, position=begin)
    for position in positions[begin:]:
        again.count(NODE, other)
        again.extended(position)
        again.moved(position)
    keys = ["a"] * (end - begin)
    assert again.are_hot(NODE, keys, positions[begin:]) == first.are_hot(
        NODE, keys, positions[begin:]
    )


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
    assert hot.extended(30) == []


def test_stretches_have_the_rows_of_each_epoch() -> None:
    hot = machine(epoch(0, 9), epoch(9, 20, "a"), epoch(20, 30, "b"))
    found = list(hot.stretches(NODE, np.array([3, 9, 22, 30])))
    assert found == [(frozenset(), slice(0, 2)), (frozenset("b"), slice(2, 4))]


@pytest.mark.parametrize("records", [0, 1, 1_999, 2_000, 5_000, 100_000])
def test_a_long_read_is_counted_in_part(records: int) -> None:
    counted = range(records)[counted_of(records)]
    assert len(counted) <= 2_000
    assert len(counted) >= min(records, 1_000)


# --- groupings that go by counts ------------------------------------------------------------------

Committed = tuple[int, dict[str, list[int]]]
MOST_US = EPOCH_US // 20
"""A record comes so often that an epoch ends by time behind the twentieth."""


def keep(kept: list[Epoch], decided: list[Epoch]) -> None:
    """As a store does: by the first position."""
    for each in decided:
        kept[:] = [*(known for known in kept if known.first != each.first), each]


def keys_of(count: int) -> list[str]:
    """Some of them hot."""
    return ["abcdefghij"[min(at * at % 17, 9)] for at in range(count)]


def read(
    owner: KeyEpochs, kept: list[Epoch], begin: int, ends: list[int], keys: list[str]
) -> list[int]:
    """The instances of all records from ``begin`` on, read up to these ends. Position n is that of
    the n-th key."""
    found: list[int] = []
    for end in ends:
        measured = {NODE: Measured(tuple(float(100 + end * (at + 1) % 700) for at in range(3)))}
        keep(kept, owner.extended(end, measured.copy, now_us=end * MOST_US))
        found += owner.choose(NODE, keys[begin:end], range(begin + 1, end + 1))
        owner.moved(end)
        begin = end
    return found


def cut(total: int, begin: int, cuts: set[int]) -> list[int]:
    return sorted({*(each for each in cuts if begin < each < total), total})


@COUNTED
@given(
    first=st.sets(st.integers(1, 399), max_size=20),
    second=st.sets(st.integers(1, 399), max_size=20),
    committed=st.integers(0, 20),
    more=st.integers(0, 30),
)
def test_a_new_owner_chooses_as_before_however_reads_are_cut(
    name: str, first: set[int], second: set[int], committed: int, more: int
) -> None:
    """And goes on beyond what was read, by tables of its own."""
    total, rules = 400, {NODE: Rule(name, 3)}
    keys = keys_of(total + more)
    owner, kept = KeyEpochs(rules), list[Epoch]()
    ends = cut(total, 0, first)
    committed = min(committed, len(ends) - 1)
    before = read(owner, kept, 0, ends[:committed], keys)
    begin, counts = len(before), owner.counts()
    whole = before + read(owner, kept, begin, ends[committed:], keys)
    again = KeyEpochs(rules, kept, begin, counts)
    assert read(again, [], begin, cut(total, begin, second), keys) == whole[begin:]
    if more:
        assert len(read(again, [], total, [total + more], keys)) == more


@COUNTED
def test_a_read_that_is_not_kept_counts_for_nothing(name: str) -> None:
    keys, kept, rules = keys_of(40), list[Epoch](), {NODE: Rule(name, 3)}
    read(KeyEpochs(rules), kept, 0, [10, 40], keys)
    one, other = KeyEpochs(rules, kept), KeyEpochs(rules, kept)
    one.extended(30)
    one.choose(NODE, keys[:30], range(1, 31))
    assert read(one, [], 0, [10, 40], keys) == read(other, [], 0, [10, 40], keys)


def test_counts_are_those_of_the_epoch_that_the_position_is_in() -> None:
    owner = KeyEpochs({NODE: Rule("shuffle", 3)})
    read(owner, [], 0, [4], ["a"] * 4)
    assert owner.counts() == {NODE: [2, 1, 1]}
    # position 10 ended the second epoch
    assert read(owner, [], 4, [6, 14], ["a"] * 14)[-2:] == [2, 0]
    assert owner.counts() == {NODE: [2, 1, 1]}


def test_a_read_without_a_record_beyond_the_end_of_an_epoch_forgets_its_counts() -> None:
    """A new owner begins in the epoch of its position, too."""
    owner, kept = KeyEpochs({NODE: Rule("shuffle", 3)}), list[Epoch]()
    read(owner, kept, 0, [4, 6], ["a"] * 6)
    keep(kept, owner.extended(14))
    owner.choose(NODE, ["a"], [7])
    owner.moved(14)
    assert owner.counts() == {NODE: [0, 0, 0]}
    again = KeyEpochs({NODE: Rule("shuffle", 3)}, kept, 14, owner.counts())
    assert again.choose(NODE, ["a"], [15]) == owner.choose(NODE, ["a"], [15]) == [0]


def test_tables_of_another_number_of_instances_are_not_used() -> None:
    kept = [Epoch(0, 90, {NODE: EpochTable(4, 1, (1.0, 2.0, 3.0))})]
    owner = KeyEpochs({NODE: Rule("nag", 2)}, kept, 10, {NODE: [9, 1, 0]})
    assert owner.choose(NODE, ["a"] * 4, range(11, 15)) == [0, 1, 0, 1]


def test_what_was_measured_is_in_the_next_table_only() -> None:
    owner, kept = KeyEpochs({NODE: Rule("tag", 2)}), list[Epoch]()
    keys = ["a", "b", "c", "d"] * 10
    owner.extended(40, {NODE: Measured((100.0, 900.0))}.copy)
    owner.choose(NODE, keys, range(1, 41))
    owner.moved(40)
    [found] = owner.extended(41, {NODE: Measured((None, None), (100.0, 400.0))}.copy)
    assert found.tables[NODE].prices == (100.0, 400.0)
    assert kept == []


# --- epochs that end by time ----------------------------------------------------------------------


def test_an_epoch_ends_by_time_behind_what_has_been_read() -> None:
    owner, kept = machine(), list[Epoch]()
    for position in (10, 20, 30, 40):
        keep(kept, owner.extended(position, now_us=position))
        owner.count(NODE, ["a"] * 12)
        owner.moved(position)
    assert kept == [epoch(0, 10), epoch(10, 30, "a", number=1), epoch(30, 70, "a", number=2)]
    assert owner.extended(50, now_us=40 + EPOCH_US - 1) == []
    assert owner.extended(50, now_us=40 + EPOCH_US) == [
        epoch(30, 40, "a", number=2),
        epoch(40, 50 + 7 * 10, "a", number=3),
    ]
    assert owner.extended(60, now_us=40 + EPOCH_US) == []


def test_an_epoch_does_not_end_by_time_before_anything_of_it_has_been_read() -> None:
    owner = machine()
    owner.extended(10)
    owner.count(NODE, ["a"] * 12)
    assert owner.extended(10, now_us=EPOCH_US) == []


def test_an_epoch_does_not_end_by_time_while_too_little_is_counted() -> None:
    owner = machine()
    owner.extended(10)
    owner.moved(10)
    owner.extended(20)
    owner.count(NODE, ["a"] * 10)
    owner.moved(20)
    assert owner.extended(30, now_us=EPOCH_US) == []


def test_a_grouping_that_learns_nothing_needs_no_table_by_time() -> None:
    owner = KeyEpochs({NODE: Rule("pkg", 2)})
    read(owner, [], 0, [10, 20], ["a"] * 20)
    assert owner.extended(25, now_us=2**40) == []


def test_time_does_not_end_the_epoch_of_an_earlier_owner() -> None:
    """It may have sent records up to its end."""
    owner = machine(epoch(0, 9), epoch(9, 90, "a"), position=20)
    for position in (30, 60, 90):
        assert owner.extended(position, now_us=2**40) == []
        owner.count(NODE, ["b"] * 30)
        owner.moved(position)
    assert owner.extended(91, now_us=2**40) == [epoch(90, 91, "b", number=1)]
