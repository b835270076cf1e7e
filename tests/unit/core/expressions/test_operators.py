"""Operators with bounded results."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.expressions.operators import MAX_POWER_BITS, modulo, power


@given(st.integers(), st.integers(-(10**9), 10**9))
def test_no_power_of_whole_numbers_takes_for_ever(base: int, exponent: int) -> None:
    try:
        found = power(base, exponent)
    except (ValueError, ArithmeticError):
        return
    assert not isinstance(found, int) or found.bit_length() <= MAX_POWER_BITS + 1
    assert found == base**exponent


def test_a_power_is_a_real_number() -> None:
    with pytest.raises(ValueError, match="no real number"):
        power(-8, 0.5)


def test_percent_is_a_remainder_and_no_language_of_its_own() -> None:
    assert modulo(7, 4) == 3
    for text in ("%s", b"%s"):
        with pytest.raises(TypeError, match="numbers only"):
            modulo(text, 1)
