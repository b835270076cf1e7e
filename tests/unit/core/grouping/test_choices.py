"""D-Choices and W-Choices: hot keys get the instances they need."""

from __future__ import annotations

from millwheel.core.grouping.catalogue import GROUPINGS
from millwheel.core.grouping.tables import Measured, first_table, imbalance
from tests.unit.core.grouping.test_base import run, zipf

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
