"""What is seen of a grouping: hot keys, shares and times."""

from __future__ import annotations

import pytest

from millwheel.core.grouping.base import Grouping
from millwheel.core.grouping.catalogue import RULES
from millwheel.core.grouping.observations import HotKey, division_of
from millwheel.core.grouping.tables import Measured, first_table

KEYS = ["a"] * 60 + ["b"] * 30 + list("cdefghijkl")


def after_a_window(name: str, measured: Measured) -> Grouping:
    machine = RULES[name](first_table(4))
    machine.count(KEYS)
    machine.choose_all(KEYS, len(KEYS) - 1)
    table = machine.next_table(measured)
    machine.begin(table)
    return machine


def test_hot_keys_have_their_shares_of_the_window_before_and_the_instances_of_now() -> None:
    found = division_of("partial.c", "p0", after_a_window("auto", Measured((None,) * 4)))
    assert found.hot == (HotKey("'a'", 0.6, 4), HotKey("'b'", 0.3, 4))
    assert (found.node, found.sender, found.grouping, found.epoch) == ("partial.c", "p0", "auto", 1)
    assert (found.shares, found.times_us, found.copies) == ((0.25,) * 4, (), 1)


def test_shares_of_tag_are_those_of_formula_4_and_its_times_those_that_it_goes_by() -> None:
    found = division_of("c", "p0", after_a_window("tag", Measured((100.0, 100.0, 200.0, 200.0))))
    assert found.times_us == (100.0, 100.0, 200.0, 200.0)
    assert found.shares == pytest.approx((1 / 3, 1 / 3, 1 / 6, 1 / 6))
    assert found.copies == 2
    assert [each.key for each in found.hot] == ["'a'", "'b'"]


def test_nag_shows_what_was_measured_and_the_shares_that_weights_make_of_it() -> None:
    found = division_of("c", "p0", after_a_window("nag", Measured((100.0, 100.0, None, 900.0))))
    assert found.times_us == (100.0, 100.0, None, 900.0)
    assert sum(found.shares) == pytest.approx(1)
    assert (found.hot, found.copies) == ((), 4)


@pytest.mark.parametrize("name", RULES)
def test_before_the_first_table_nothing_is_hot_and_all_are_equal(name: str) -> None:
    found = division_of("c", "p0", RULES[name](first_table(4)))
    assert (found.hot, found.shares, found.times_us, found.epoch) == ((), (0.25,) * 4, (), 0)
    assert 1 <= found.copies <= 4
