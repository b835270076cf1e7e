"""Numbers: the signs of SQL, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.expressions.families.numbers import FUNCTIONS

ACTS = {name: function.act for name, function in FUNCTIONS.items()}
WHOLE = st.integers() | st.integers(-9, 9)


@given(WHOLE, WHOLE.filter(bool))
def test_quotient_and_rest_belong_together_and_have_the_signs_of_sql(left: int, right: int) -> None:
    quotient, rest = ACTS["quotient"](left, right), ACTS["mod"](left, right)
    assert quotient * right + rest == left
    assert quotient == math.trunc(Fraction(left, right))
    assert rest == 0 or (rest < 0) == (left < 0)


@given(st.floats(-1e9, 1e9), st.floats(0.001, 1e9))
def test_the_rest_of_floats_is_that_of_whole_numbers(left: float, right: float) -> None:
    rest = ACTS["mod"](left, right)
    exact = Fraction(left) - math.trunc(Fraction(left) / Fraction(right)) * Fraction(right)
    assert Fraction(rest) == exact
    assert math.copysign(1.0, rest) == math.copysign(1.0, left)


@pytest.mark.parametrize("name", ["mod", "quotient"])
def test_there_is_no_division_by_zero(name: str) -> None:
    for zero in (0, 0.0):
        with pytest.raises((ZeroDivisionError, TypeError)):
            ACTS[name](1, zero)


def test_a_sign_is_that_of_a_number() -> None:
    assert [ACTS["sign"](each) for each in (-3, 0, -0.0, 2.5)] == [-1, 0, 0, 1]
    with pytest.raises(TypeError, match="needs a number, not str"):
        ACTS["sign"]("a")
    with pytest.raises(ValueError, match="up to 400 digits"):
        ACTS["round"](1, 401)
