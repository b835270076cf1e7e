"""Imbalance, and draws that can be repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.grouping.tables import LATENCY_US, Network, draw, first_table, hashed, imbalance


def test_imbalance_is_how_far_the_greatest_load_is_above_the_mean() -> None:
    assert imbalance([2.0, 2.0, 2.0]) == 0
    assert imbalance([4.0, 1.0, 1.0]) == 1.0
    assert imbalance([0.0, 0.0]) == 0


@given(st.integers(), st.text(), st.integers(0, 99))
def test_a_draw_lies_in_the_unit_interval_and_is_the_same_again(
    epoch: int, key: str, segment: int
) -> None:
    epoch %= 2**32
    assert 0 <= draw(epoch, key, segment) < 1
    assert draw(epoch, key, segment) == draw(epoch, key, segment)


def test_draws_are_spread_evenly() -> None:
    drawn = [draw(1, "key", each) for each in range(4000)]
    assert sum(drawn) / len(drawn) == pytest.approx(0.5, abs=0.02)


def test_the_hash_functions_of_a_family_are_independent() -> None:
    same = sum(hashed(key, 0, 10) == hashed(key, 1, 10) for key in range(4000))
    assert same / 4000 == pytest.approx(0.1, abs=0.02)


def test_there_is_no_table_for_no_instance() -> None:
    with pytest.raises(ValueError, match="at least one"):
        first_table(0)


def test_the_farther_an_instance_the_longer_a_message_travels() -> None:
    assert [LATENCY_US[each] for each in Network] == sorted(LATENCY_US.values())
