"""Counts, sums and variances are exact."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.errors import RecordError
from tests.unit.core.aggregates.both_forms import made_of
from tests.unit.core.aggregates.test_base import _make, _over
from tests.unit.core.columns.state.test_windows import Row, batch_of, plan_of


@pytest.mark.parametrize("function", ["sum", "mean"])
def test_a_float_that_was_subtracted_leaves_no_rounding_behind(function: str) -> None:
    made = _make(function)
    acc = _over(made, [(value, 0) for value in (2**60 + 1, 2**60 + 3, 7)])
    found = made.result(made.subtract(made.add(acc, 2.5, 0), 2.5, 0))
    assert type(found) is float
    assert found == float(Fraction(2**61 + 11, 3 if function == "mean" else 1))


@given(
    rows=st.lists(st.one_of(st.integers(-(2**62), 2**62), st.floats(-1e200, 1e200)), max_size=30)
)
def test_the_sum_is_the_exact_sum_rounded_once(rows: list[Any]) -> None:
    made = _make("sum")
    found = made.result(_over(made, [(value, 0) for value in rows]))
    exact = sum((Fraction(value) for value in rows), Fraction(0))
    if all(isinstance(value, int) for value in rows) and -(2**63) <= exact < 2**63:
        assert found == exact
    else:
        assert found == float(exact)


@pytest.mark.parametrize("value", [None, True, "7", math.nan, math.inf, [1], {"a": 1}])
@pytest.mark.parametrize("function", ["sum", "mean", "variance", "stddev", "quantile"])
def test_what_is_no_finite_number_is_named_with_its_field(function: str, value: Any) -> None:
    with pytest.raises(
        RecordError, match=rf"{function} of field 'size' needs a finite number, not "
    ):
        _make(function).check(value, "size")


def test_a_sum_beyond_every_float_is_a_fault_of_the_result_alone() -> None:
    made = _make("sum")
    acc = made.add_many(made.create(), [1.7e308, 1.7e308], [0, 0])
    with pytest.raises(RecordError, match="left the range"):
        made.result(acc)
    assert made.result(made.subtract(acc, 1.7e308, 0)) == 1.7e308


def test_a_mean_is_found_also_where_the_sum_is_beyond_every_float() -> None:
    made = _make("mean")
    acc = made.add_many(made.create(), [1.7e308, 1.7e308, 1], [0, 0, 0])
    assert made.result(acc) == float((2 * Fraction(1.7e308) + 1) / 3)


def test_a_sum_beyond_64_bits_is_noticed_and_kept_exactly() -> None:
    plan = plan_of()
    assert plan is not None
    groups = plan.group(batch_of([Row(1, "click", 1.0, 2**62, 5)] * 3))
    with pytest.raises(Inexact):
        plan.results(groups)
    [(key, group)] = plan.row_groups(groups)
    assert (key, group.count, group.acc[4]) == (1, 3, [str(3 * 2**62)])


def test_an_accumulator_that_columns_cannot_hold_says_so() -> None:
    whole = made_of(AggregateSpec("x", "sum", "f"), "int")
    with pytest.raises(Inexact):
        whole.from_acc([1, 0.5])
    floats = made_of(AggregateSpec("x", "sum", "f"), "float")
    for acc in ([0, 2.0**-100], [0, 2.0**61]):
        with pytest.raises(Inexact):
            floats.from_acc(acc)
