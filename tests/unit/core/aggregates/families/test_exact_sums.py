"""Sums of floats in columns are exact, and rounded once."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.families.exact_sums import (
    SCALE_BITS,
    as_floats,
    exact_add,
    exact_value,
    fraction,
    fraction_part,
    from_exact,
    to_exact,
    whole_part,
)
from tests.unit.core.columns.state.test_windows import Row, batch_of, costs, plan_of


@given(st.lists(costs, min_size=1, max_size=30))
def test_sums_in_columns_round_once(values: list[float]) -> None:
    acc = exact_add([0], values)
    whole, rest = from_exact(acc)
    [found] = as_floats(
        pl.Series([whole], dtype=pl.Int128), pl.Series([rest], dtype=pl.Int128)
    ).to_list()
    assert found == exact_value(acc)
    assert exact_value(to_exact(whole, rest)) == exact_value(acc)


@pytest.mark.parametrize("cost", [1e-12, 2.0**61, -1e30, 2.0**-37 / 3])
def test_numbers_that_columns_cannot_hold_are_noticed(cost: float) -> None:
    plan = plan_of()
    assert plan is not None
    with pytest.raises(Inexact):
        plan.group(batch_of([Row(1, "click", cost, 1, 5)]))


@given(st.sampled_from([1.0, -1.0]), st.floats(2.0**-37, 2.0**60, exclude_max=True))
def test_the_parts_of_a_float_that_fits_are_all_of_it(sign: float, size: float) -> None:
    cost = pl.col("cost")
    parts = pl.DataFrame({"cost": [sign * size]}).select(
        whole_part(cost).alias("w"), fraction_part(cost).alias("f")
    )
    whole, rest = parts.row(0)
    assert whole + Fraction(rest, 2**SCALE_BITS) == Fraction(sign * size)


far = st.sampled_from([1.7e308, -1.7e308, 1e308, 1.0, -0.1, 5e-324, 7, -(2**62)])


@given(st.lists(far, max_size=8), st.lists(far, max_size=8), st.randoms(use_true_random=False))
def test_sums_beyond_all_floats_are_the_same_in_any_grouping(
    some: list[float], others: list[float], order: Random
) -> None:
    together = exact_add([0], [*some, *others])
    shuffled = [*some, *others]
    order.shuffle(shuffled)
    one_by_one: list[Any] = [0]
    for value in shuffled:
        one_by_one = exact_add(one_by_one, [value])
    merged = exact_add(exact_add([0], some), exact_add([0], others))
    assert merged == together == one_by_one
    assert fraction(merged) == sum(map(Fraction, shuffled), Fraction(0))
    assert fraction(exact_add(merged, [-value for value in others])) == fraction(
        exact_add([0], some)
    )


def test_a_sum_beyond_all_floats_does_not_go_into_columns() -> None:
    with pytest.raises(Inexact):
        from_exact(exact_add([0], [1.7e308, 1.7e308]))
