"""Counts, sums and variances are exact."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.functions import make_aggregator
from millwheel.errors import RecordError
from tests.unit.core.aggregates.test_base import _make, _over


@pytest.mark.parametrize("function", ["sum", "mean"])
def test_a_float_that_was_subtracted_leaves_no_rounding_behind(function: str) -> None:
    made = _make(function)
    acc = _over(made, [(value, 0) for value in (2**60 + 1, 2**60 + 3, 7)])
    found = made.result(made.subtract(made.add(acc, 2.5, 0), 2.5, 0))
    assert type(found) is float
    assert found == float(Fraction(2**61 + 11, 3 if function == "mean" else 1))


@given(rows=st.lists(st.one_of(st.integers(-(2**62), 2**62), st.floats(-1e200, 1e200)), max_size=30))
def test_the_sum_is_the_exact_sum_rounded_once(rows: list[Any]) -> None:
    made = _make("sum")
    found = made.result(_over(made, [(value, 0) for value in rows]))
    exact = sum((Fraction(value) for value in rows), Fraction(0))
    if all(isinstance(value, int) for value in rows) and -(2**63) <= exact < 2**63:
        assert found == exact
    else:
        assert found == float(exact)


@given(rows=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_variance_is_as_exact_as_fractions(rows: list[float]) -> None:
    over = [(value, 0) for value in rows]
    variance = _make("variance")
    assert variance.result(_over(variance, over)) == pytest.approx(statistics.variance(rows), rel=1e-12, abs=1e-300)
    population = make_aggregator("variance", {"population": True})
    assert population.result(_over(population, over)) == pytest.approx(
        statistics.pvariance(rows), rel=1e-12, abs=1e-300
    )


@pytest.mark.parametrize("value", [None, True, "7", math.nan, math.inf, [1], {"a": 1}])
@pytest.mark.parametrize("function", ["sum", "mean", "variance", "stddev", "quantile"])
def test_what_is_no_finite_number_is_named_with_its_field(function: str, value: Any) -> None:
    with pytest.raises(RecordError, match=rf"{function} of field 'size' needs a finite number, not "):
        _make(function).check(value, "size")


def test_a_sum_beyond_every_float_is_a_fault_of_the_record() -> None:
    made = _make("sum")
    with pytest.raises(RecordError, match="left the range"):
        made.add_many(made.create(), [1.7e308, 1.7e308], [0, 0])
