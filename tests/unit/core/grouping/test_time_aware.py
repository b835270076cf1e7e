"""TAG: its six formulas, the table made of them, and the loads that follow."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.grouping.base import hot_share
from millwheel.core.grouping.plain import Hash, PartialKey
from millwheel.core.grouping.tables import EpochTable, Measured, first_table, imbalance
from millwheel.core.grouping.time_aware import TimeAware, probabilities, segments, shares, smoothed
from tests.unit.core.grouping.test_base import run, zipf

TIMES_US = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=20)


@given(TIMES_US, st.floats(1.0, 1e9))
def test_formulas_1_3_and_5_all_instances_are_busy_for_the_same_time(
    times_us: list[float], records: float
) -> None:
    given_out = shares(records, times_us)
    assert sum(given_out) == pytest.approx(records)
    busy = records / sum(1 / each for each in times_us)
    assert [m * t for m, t in zip(given_out, times_us, strict=True)] == pytest.approx(
        [busy] * len(times_us)
    )


@given(TIMES_US)
def test_formula_2_such_loads_have_no_imbalance(times_us: list[float]) -> None:
    loads = [m * t for m, t in zip(shares(1000.0, times_us), times_us, strict=True)]
    assert imbalance(loads) == pytest.approx(0, abs=1e-9)


@given(TIMES_US)
def test_formula_4_an_instance_is_drawn_as_often_as_it_is_fast(times_us: list[float]) -> None:
    drawn = probabilities(times_us)
    assert sum(drawn) == pytest.approx(1)
    assert [
        p * t / (drawn[0] * times_us[0]) for p, t in zip(drawn, times_us, strict=True)
    ] == pytest.approx([1.0] * len(times_us))


def test_formula_6_two_candidates_balance_what_one_does_not() -> None:
    """Keys of at most 1/(5n): with one candidate the fullest instance is far above the mean, with
    two it is not."""
    random = Random(3)
    n, records = 10, 20_000
    keys = [random.randrange(5 * n) for _ in range(records)]
    one, two = Hash(first_table(n)), PartialKey(first_table(n))
    run(one, keys)
    run(two, keys)
    assert imbalance(two.counts) < 0.25 < imbalance(one.counts)


def test_at_most_5n_keys_are_hot() -> None:
    assert hot_share(12) == pytest.approx(1 / 60)


@pytest.mark.parametrize(("count", "number"), [(1000, 50), (20, 1), (1, 1), (500, 25)])
def test_a_hot_key_has_a_segment_for_each_1_5n_of_the_records(count: int, number: int) -> None:
    assert segments(count, 1000, 10) == number


def test_times_are_smoothed_capped_and_kept_where_nothing_was_completed() -> None:
    assert smoothed((100.0, 100.0), (200.0, None)) == (150.0, 100.0)
    assert smoothed((100.0, 100.0), (1e9, 100.0)) == (1600.0, 100.0)


def test_the_first_window_counts_alone_and_unknown_times_take_its_mean() -> None:
    assert smoothed(None, (100.0, 300.0, None)) == (100.0, 300.0, 200.0)
    assert smoothed(None, (None, None)) == (1.0, 1.0)


def second(measured: tuple[float, ...], exponent: float = 2.0) -> tuple[TimeAware, EpochTable]:
    grouping = TimeAware(first_table(len(measured)))
    run(grouping, zipf(6000, exponent))
    table = grouping.next_table(Measured(measured))
    grouping.begin(table)
    run(grouping, zipf(6000, exponent, seed=2))
    return grouping, table


@pytest.mark.parametrize("measured", [(100.0,) * 6, (400.0, 400.0, 400.0, 200.0, 200.0, 100.0)])
def test_loads_are_equal_where_counts_are_not(measured: tuple[float, ...]) -> None:
    grouping, table = second(measured)
    loads = [count * t for count, t in zip(grouping.counts, measured, strict=True)]
    assert imbalance(loads) < 0.05
    assert table.prices == measured


def test_only_keys_above_the_threshold_have_routes_and_the_hottest_the_longest() -> None:
    _, table = second((100.0,) * 6)
    assert 0 < len(table.routes) <= 5 * 6
    assert len(table.routes[0]) == max(len(route) for route in table.routes.values()) >= 5


def test_segments_go_to_instances_as_often_as_these_are_fast() -> None:
    """One segment per key, many keys: the share of each instance is its probability."""
    grouping = TimeAware(first_table(3))
    for position in range(1000):
        grouping.choose(position, position)
    drawn = [grouping._drawn(1, key, 1, [0.5, 0.8, 1.0]) for key in range(3000)]
    assert [drawn.count((each,)) / 3000 for each in range(3)] == pytest.approx(
        [0.5, 0.3, 0.2], abs=0.03
    )


def test_a_wait_behind_own_records_does_not_count_where_it_was_measured_apart() -> None:
    grouping = TimeAware(first_table(2))
    assert grouping.next_table(Measured((900.0, 500.0), (100.0, 100.0))).prices == (100.0, 100.0)
    assert grouping.next_table(Measured((900.0, 500.0))).prices == (900.0, 500.0)
