"""Texts and units of decimals, and what is cast to them."""

from __future__ import annotations

import pytest

from millwheel.core.expressions.functions import FUNCTIONS

CAST, UNITS = FUNCTIONS["cast"].act, FUNCTIONS["decimal_units"].act


def test_what_is_cast_to_a_decimal_has_its_digits() -> None:
    assert str(CAST("1.5", "decimal(5, 2)")) == "1.50"
    assert CAST("x", "decimal(5, 2)", 7) == 7
    assert CAST(None, "decimal(5, 2)") is None
    with pytest.raises(ValueError, match=r"a list cannot be cast to decimal\(5, 2\)"):
        CAST([1], "decimal(5, 2)")


def test_units_are_the_nearest_of_what_has_room() -> None:
    assert UNITS("10.505", 12, 2) == 1050
    assert UNITS("100", 4, 2, None) is None
    with pytest.raises(ValueError, match=r"'100' cannot be cast to decimal\(4, 2\)"):
        UNITS("100", 4, 2)
    with pytest.raises(ValueError, match="digits are whole numbers up to 18"):
        UNITS("1", True, 2)
