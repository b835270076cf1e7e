from __future__ import annotations

from millwheel.core.grouping.hot_keys import HotKeys
from millwheel.core.grouping.tables import Measured, first_table

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
