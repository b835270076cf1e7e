"""What every grouping keeps: a decision is a function of the position and the table, so that a
replay repeats it."""

from __future__ import annotations

from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.grouping.base import Grouping
from millwheel.core.grouping.catalogue import GROUPINGS
from millwheel.core.grouping.plain import HotKeys
from millwheel.core.grouping.tables import EpochTable, Measured, first_table, imbalance
from millwheel.errors import InvariantError

ALL = pytest.mark.parametrize("name", GROUPINGS)


def zipf(count: int, exponent: float = 1.4, keys: int = 500, seed: int = 1) -> list[int]:
    ends = list(accumulate((rank + 1) ** -exponent for rank in range(keys)))
    return Random(seed).choices(range(keys), cum_weights=ends, k=count)


def run(grouping: Grouping, keys: list[int]) -> list[int]:
    first = grouping.table.first + sum(grouping.counts)
    return [grouping.choose(first + offset, key) for offset, key in enumerate(keys)]


def learned(name: str, measured: Measured, instances: int = 5) -> EpochTable:
    """The table after a window."""
    grouping = GROUPINGS[name](first_table(instances))
    run(grouping, zipf(2000))
    return grouping.next_table(measured)


MEASURED = Measured((100.0, 100.0, 200.0, 400.0, None))


@ALL
def test_every_decision_names_an_instance_and_is_counted(name: str) -> None:
    grouping = GROUPINGS[name](learned(name, MEASURED))
    decisions = run(grouping, zipf(1000))
    assert all(0 <= each < 5 for each in decisions)
    assert [decisions.count(each) for each in range(5)] == grouping.counts


@ALL
@given(at=st.integers(0, 400))
def test_a_replay_from_any_commit_decides_the_same(name: str, at: int) -> None:
    table = learned(name, MEASURED)
    keys = zipf(400, seed=7)
    first = GROUPINGS[name](table)
    before = run(first, keys[:at])
    again = GROUPINGS[name](table, tuple(first.counts))  # as the commit holds them
    assert before + run(again, keys[at:]) == run(GROUPINGS[name](table), keys)


@ALL
def test_what_is_measured_within_an_epoch_changes_no_decision_of_it(name: str) -> None:
    table = learned(name, MEASURED)
    keys = zipf(400, seed=9)
    disturbed = GROUPINGS[name](table)
    decisions = []
    for offset, key in enumerate(keys):
        disturbed.next_table(Measured((float(offset + 1), 1.0, 1.0, 1.0, 1.0)))
        decisions.append(disturbed.choose(table.first + offset, key))
    assert decisions == run(GROUPINGS[name](table), keys)


@ALL
def test_the_next_table_begins_behind_the_last_record_and_is_the_same_when_made_again(
    name: str,
) -> None:
    table = learned(name, MEASURED)
    assert (table.epoch, table.first, table.instances) == (1, 2000, 5)
    assert table == learned(name, MEASURED)


@pytest.mark.parametrize(("counts", "chosen"), [((3, 0), 0), ((4, 0), 1)])
def test_the_least_loaded_candidate_counts_the_record_it_would_get(
    counts: tuple[int, int], chosen: int
) -> None:
    """4 records of price 1 are as much as 1 of price 4: the first of equals."""
    table = EpochTable(1, 0, (1.0, 4.0), {"a": (0, 1)})
    assert GROUPINGS["tag"](table, counts).choose_all(["a"], 9) == [chosen]


@ALL
def test_with_one_instance_everything_goes_there(name: str) -> None:
    table = learned(name, Measured((100.0,)), instances=1)
    assert set(run(GROUPINGS[name](table), zipf(100))) == {0}


@ALL
def test_an_epoch_begins_where_the_last_one_ended(name: str) -> None:
    grouping = GROUPINGS[name](first_table(5))
    run(grouping, zipf(100))
    table = grouping.next_table(MEASURED)
    grouping.begin(table)
    assert (grouping.counts, grouping.table) == ([0] * 5, table)
    run(grouping, zipf(1))
    with pytest.raises(InvariantError, match="begins at 100"):
        grouping.begin(table)


@ALL
def test_a_record_is_not_decided_twice(name: str) -> None:
    grouping = GROUPINGS[name](first_table(5))
    grouping.choose(0, "a")
    with pytest.raises(InvariantError, match="once, in order"):
        grouping.choose(0, "a")


@ALL
@given(
    times_us=st.lists(st.one_of(st.none(), st.floats(0, 1e12)), min_size=3, max_size=3),
    alone_us=st.lists(st.one_of(st.none(), st.floats(0, 1e12)), min_size=3, max_size=3),
)
def test_whatever_was_measured_there_is_a_next_table_and_another_after_it(
    name: str, times_us: list[float | None], alone_us: list[float | None]
) -> None:
    grouping = GROUPINGS[name](first_table(3))
    for _ in range(2):
        run(grouping, zipf(20))
        grouping.begin(grouping.next_table(Measured(tuple(times_us), tuple(alone_us))))
    assert all(price > 0 for price in grouping.table.prices)
    assert {grouping.choose(grouping.table.first + at, at) for at in range(40)} <= {0, 1, 2}


# plain.py: Hash, shuffle and PKG: how many instances a key has, and how even the counts are.


def replicas(name: str, keys: list[int], instances: int = 8) -> tuple[int, float]:
    """The most instances that a key went to, and the imbalance of counts."""
    grouping = GROUPINGS[name](first_table(instances))
    seen: dict[int, set[int]] = {}
    for key, chosen in zip(keys, run(grouping, keys), strict=True):
        seen.setdefault(key, set()).add(chosen)
    return max(len(each) for each in seen.values()), imbalance(grouping.counts)


def test_hash_keeps_a_key_together() -> None:
    assert replicas("hash", zipf(4000))[0] == 1


def test_shuffle_is_even_and_puts_a_hot_key_everywhere() -> None:
    assert replicas("shuffle", zipf(4000)) == (8, 0.0)


def test_pkg_gives_a_key_two_instances_and_is_more_even_than_hash() -> None:
    keys = zipf(8000, exponent=0.8, keys=2000)
    most, uneven = replicas("pkg", keys)
    assert most == 2
    assert uneven < 0.02 < replicas("hash", keys)[1]


def test_pkg_cannot_balance_a_key_of_more_than_two_shares() -> None:
    assert replicas("pkg", zipf(8000, exponent=2.0))[1] > 0.5


NOTHING = Measured((None,) * 2)


def counted(grouping: HotKeys, of_a: int) -> HotKeys:
    """A hundred keys. With two instances a key is hot above a tenth."""
    grouping.count(["a"] * of_a + [f"k{each}" for each in range(100 - of_a)])
    return grouping


def test_keys_above_the_threshold_go_to_all_instances_and_others_to_the_first() -> None:
    table = counted(HotKeys(first_table(2)), 11).next_table(NOTHING)
    assert table.routes == {"a": (0, 1)}
    assert set(HotKeys(table).choose_all(["k1"] * 9, 9)) == {0}


def test_a_key_that_was_hot_stays_so_down_to_half_of_the_threshold() -> None:
    hot = counted(HotKeys(first_table(2)), 11).next_table(NOTHING)
    assert set(counted(HotKeys(hot), 7).next_table(NOTHING).routes) == {"a"}
    assert counted(HotKeys(hot), 4).next_table(NOTHING).routes == {}
    assert counted(HotKeys(first_table(2)), 7).next_table(NOTHING).routes == {}
