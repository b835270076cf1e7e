"""Tables of the moment, for productions."""

from __future__ import annotations

from collections import Counter

from millwheel.core.grouping.catalogue import GROUPINGS
from millwheel.core.grouping.current import CurrentTables
from millwheel.core.grouping.epochs import EPOCH_US, Rule
from millwheel.core.grouping.tables import Measured, first_table, imbalance
from tests.unit.core.grouping.test_base import run, zipf


def test_a_hot_key_is_divided_once_enough_is_counted_and_others_stay_whole() -> None:
    tables = CurrentTables({"c": Rule("auto", 4)})
    keys = ["hot"] * 9 + ["cold"]
    tables.turn()
    assert set(tables.choose("c", keys)) == {0}
    for number in range(2):
        tables.choose("c", [f"k{number}{each}" for each in range(10)])
    assert set(tables.choose("c", ["hot"] * 4)) == {0}, "no table is made but in a turn"
    tables.turn()
    chosen = tables.choose("c", ["hot", "k01", "hot", "k01", "hot", "hot"])
    assert sorted(chosen[index] for index in (0, 2, 4, 5)) == [0, 1, 2, 3]
    assert {chosen[1], chosen[3]} == {0}


def test_the_first_tables_come_sooner_than_later_ones() -> None:
    tables = CurrentTables({"c": Rule("tag", 2)})
    took: list[int] = []

    def measured() -> dict[str, Measured]:
        took.append(sum(counted))
        return {"c": Measured((1.0, 2.0))}

    counted: list[int] = []
    for _ in range(200):
        tables.turn(measured)
        tables.choose("c", ["a"])
        counted.append(1)
    assert took == [11, 32, 73, 154], "after 10, 20, 40 and 80 records"


def test_time_ends_a_table_that_few_records_go_by() -> None:
    tables = CurrentTables({"c": Rule("nag", 2)}, now_us=5)
    took: list[int] = []

    def measured() -> dict[str, Measured]:
        took.append(1)
        return {}

    tables.turn(measured, 5 + EPOCH_US)
    assert not took, "nothing went by it"
    tables.choose("c", ["a"])
    tables.turn(measured, 4 + EPOCH_US)
    assert not took
    tables.turn(measured, 5 + EPOCH_US)
    assert took == [1]


def test_measured_times_decide_where_records_go() -> None:
    tables = CurrentTables({"c": Rule("tag", 2)})
    tables.choose("c", ["a", "b", "c", "d", "e"] * 6)
    tables.turn(lambda: {"c": Measured((100.0, 900.0))})
    shares = Counter(tables.choose("c", ["a", "b", "c", "d", "e"] * 200))
    assert shares[0] > 3 * shares[1]


def test_groupings_that_learn_nothing_keep_their_table() -> None:
    tables = CurrentTables({"c": Rule("shuffle", 3)})
    assert tables.choose("c", ["a"] * 200)[:4] == [0, 1, 2, 0]
    tables.turn(now_us=10**9)
    assert tables.choose("c", ["a"]) == [2], "counts go on"


# D-Choices and W-Choices: hot keys get the instances they need.

NOTHING = Measured((None,) * 8)
KEYS = zipf(8000, exponent=2.0)


def second_window(name: str) -> tuple[dict[int, int], float]:
    """How many candidates each hot key has, and the imbalance of counts in the window after the
    first."""
    grouping = GROUPINGS[name](first_table(8))
    run(grouping, KEYS)
    grouping.begin(grouping.next_table(NOTHING))
    run(grouping, KEYS)
    return {key: len(set(route)) for key, route in grouping.table.routes.items()}, imbalance(
        grouping.counts
    )


def test_w_choices_gives_hot_keys_all_instances_and_balances_them() -> None:
    candidates, uneven = second_window("w-choices")
    assert set(candidates.values()) == {8}
    assert uneven < 0.01


def test_d_choices_gives_a_hot_key_as_many_as_its_share_needs() -> None:
    candidates, uneven = second_window("d-choices")
    pkg = GROUPINGS["pkg"](first_table(8))
    run(pkg, KEYS)
    plain = imbalance(pkg.counts)
    assert candidates[0] == 6  # 61 % of 8 instances are 4.9, and one more
    assert min(candidates.values()) == 2
    assert uneven < 0.2 < plain
