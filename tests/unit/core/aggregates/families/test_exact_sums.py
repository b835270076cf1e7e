"""Sums of floats in columns are exact, and rounded once."""

from __future__ import annotations

from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Unfit
from millwheel.core.aggregates.families.exact_sums import (
    SCALE_BITS,
    as_floats,
    exact_add,
    exact_value,
    fraction_part,
    from_exact,
    to_exact,
    whole_part,
)
from tests.unit.core.columns.test_windows import Row, batch_of, costs, plan_of


@given(st.lists(costs, min_size=1, max_size=30))
def test_sums_in_columns_round_once(values: list[float]) -> None:
    acc = exact_add([0], values)
    whole, fraction = from_exact(acc)
    [found] = as_floats(
        pl.Series([whole], dtype=pl.Int128), pl.Series([fraction], dtype=pl.Int128)
    ).to_list()
    assert found == exact_value(acc)
    assert exact_value(to_exact(whole, fraction)) == exact_value(acc)


@pytest.mark.parametrize("cost", [1e-12, 2.0**61, -1e30, 2.0**-37 / 3])
def test_numbers_that_columns_cannot_hold_are_noticed(cost: float) -> None:
    plan = plan_of()
    assert plan is not None
    with pytest.raises(Unfit):
        plan.group(batch_of([Row(1, "click", cost, 1, 5)]))


@given(st.sampled_from([1.0, -1.0]), st.floats(2.0**-37, 2.0**60, exclude_max=True))
def test_the_parts_of_a_float_that_fits_are_all_of_it(sign: float, size: float) -> None:
    cost = pl.col("cost")
    parts = pl.DataFrame({"cost": [sign * size]}).select(
        whole_part(cost).alias("w"), fraction_part(cost).alias("f")
    )
    whole, fraction = parts.row(0)
    assert whole + Fraction(fraction, 2**SCALE_BITS) == Fraction(sign * size)
