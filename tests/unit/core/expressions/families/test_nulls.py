"""Nulls, types, and what lies within values."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.expressions import functions
from millwheel.core.expressions.families.nulls import FUNCTIONS

CAST, JSON = FUNCTIONS["cast"].act, FUNCTIONS["json"].act


@pytest.mark.parametrize(
    ("value", "to", "expected"),
    [
        ("-12", "int", -12),
        (2.9, "int", 2),
        (-2.9, "int", -2),
        (True, "int", 1),
        ("1_000", "int", None),
        ("2.5", "int", None),
        ("\u0663", "int", None),
        ("9" * 5_000, "int", None),
        (float("inf"), "int", None),
        ("", "int", None),
        (7, "float", 7.0),
        ("-.5e1", "float", -5.0),
        ("nan", "float", None),
        (10**400, "float", None),
        (0.5, "text", "0.5"),
        (False, "text", "false"),
        ([1], "text", None),
        ("TRUE", "bool", True),
        ("0", "bool", False),
        (2, "bool", True),
        (0.0, "bool", False),
        (float("nan"), "bool", None),
        ("yes", "bool", None),
        (None, "int", None),
    ],
)
def test_a_cast_gives_the_value_or_what_stands_for_it(value: Any, to: str, expected: Any) -> None:
    found = CAST(value, to, None)
    assert (type(found), found) == (type(expected), expected)
    if expected is None and value is not None:
        with pytest.raises(ValueError, match=f"cannot be cast to {to}"):
            CAST(value, to)


def test_a_type_is_one_of_five() -> None:
    with pytest.raises(ValueError, match=r"a type is one of int, float, text, bool and decimal"):
        CAST("1", "decimal")
    with pytest.raises(ValueError, match="has 19 digits; write 1 to 18"):
        CAST("1", "decimal(19, 2)")


def test_json_has_names_and_positions_and_null_for_all_else() -> None:
    text = '{"a": [{"b": null}, 7, "x"], "__class__": 1}'
    assert JSON(text, "a", -1) == "x"
    for steps in (
        ("a", 0, "b"),
        ("a", 9),
        ("a", "b"),
        (0,),
        ("a", 1, "b"),
        ("a", 2, 0),
        ("x", "y"),
    ):
        assert JSON(text, *steps) is None
    assert JSON({"a": (1, 2)}, "a", 1) == 2
    for wrong in ("{", "", "[" * 100_000, b"\xff"):
        with pytest.raises(ValueError, match="is not JSON"):
            JSON(wrong)
    with pytest.raises(TypeError, match="a step is a name or a position"):
        JSON(text, None)


# decimals.py: Texts and units of decimals, and what is cast to them.

DECIMAL, UNITS = functions.FUNCTIONS["cast"].act, functions.FUNCTIONS["decimal_units"].act


def test_what_is_cast_to_a_decimal_has_its_digits() -> None:
    assert str(DECIMAL("1.5", "decimal(5, 2)")) == "1.50"
    assert DECIMAL("x", "decimal(5, 2)", 7) == 7
    assert DECIMAL(None, "decimal(5, 2)") is None
    with pytest.raises(ValueError, match=r"a list cannot be cast to decimal\(5, 2\)"):
        DECIMAL([1], "decimal(5, 2)")


def test_units_are_the_nearest_of_what_has_room() -> None:
    assert UNITS("10.505", 12, 2) == 1050
    assert UNITS("100", 4, 2, None) is None
    with pytest.raises(ValueError, match=r"'100' cannot be cast to decimal\(4, 2\)"):
        UNITS("100", 4, 2)
    with pytest.raises(ValueError, match="digits are whole numbers up to 18"):
        UNITS("1", True, 2)
