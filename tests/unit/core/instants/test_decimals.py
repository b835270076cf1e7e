"""Decimals as whole units."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.instants.decimals import (
    DecimalForm,
    beyond,
    decimal_form,
    in_units_again,
    is_decimal,
    shown,
    with_decimals,
    without_decimals,
)
from millwheel.errors import RecordError

FORM = DecimalForm(12, 2)


@pytest.mark.parametrize(
    ("value", "units"),
    [
        ("10.50", 1050),
        (" 10.5 ", 1050),
        ("-0.01", -1),
        ("1e3", 100_000),
        ("1.000e-1", 10),
        ("0e999999", 0),
        ("-0", 0),
        ("9999999999.99", 999_999_999_999),
        (5, 500),
        (Decimal("10.10"), 1010),
        (Decimal("1.230000"), 123),
    ],
)
def test_a_number_becomes_units(value: Any, units: int) -> None:
    assert FORM.inside(value) == units
    assert FORM.inside_of_text(str(value)) == units


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("1.001", "it is str '1.001', which has more than 2 digits behind the point"),
        (Decimal("1e-99999"), "it is 1E-99999, which has more than 2 digits behind the point"),
        ("10000000000", "it is str '10000000000', which has more than 10 digits before the point"),
        ("1e999999999", "more than 10 digits before the point"),
        ("1e99999999999999999999", "which is not a number"),
        ("NaN", "which is not a number"),
        ("-Infinity", "which is not a number"),
        ("ten", "it is str 'ten', which is not a number"),
        ("", "which is not a number"),
        (10.5, "it is float 10.5, and a decimal is a number or a text"),
        (True, "it is bool True, and a decimal is a number or a text"),
        ([], "and a decimal is a number or a text"),
    ],
)
def test_what_is_no_number_of_the_form_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(RecordError) as error:
        FORM.inside(value)
    assert reason in str(error.value)


@given(st.decimals(-(10**10), 10**10, places=2, allow_nan=False).filter(lambda x: abs(x) < 10**10))
def test_units_are_shown_as_the_number_that_was_read(number: Decimal) -> None:
    found = shown(FORM.inside(str(number)), 2)
    assert found == number
    assert str(abs(found)) == str(abs(number))


@given(st.lists(st.integers(-(10**10), 10**10) | st.sampled_from(["1.5", "x", "0.001"])))
def test_a_column_has_the_units_of_its_values(values: list[Any]) -> None:
    found = FORM.column(values)
    try:
        expected = [FORM.inside(each) for each in values]
    except RecordError:
        assert found is None
    else:
        assert found is not None
        assert found.tolist() == expected


def test_a_column_of_numbers_that_are_too_large_is_looked_at() -> None:
    assert FORM.numbers(np.array([10**10])) is None
    assert FORM.numbers(np.array([-(10**10)])) is None
    assert FORM.column([2**70]) is None
    found = FORM.numbers(np.array([5, 10**10 - 1]))
    assert found is not None
    assert found.tolist() == [500, 10**12 - 100]


def test_kinds() -> None:
    assert decimal_form("decimal( 12 ,2)") == FORM
    assert decimal_form(FORM.kind) == FORM
    assert decimal_form("decimal(5)") == DecimalForm(5, 0)
    assert not is_decimal("decimal")
    assert not is_decimal("decimal(x, 2)")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("decimal(38, 9)", "has 38 digits; write 1 to 18, for example decimal(18, 9)"),
        ("decimal(0, 0)", "has 0 digits"),
        ("decimal(2, 5)", "more digits behind the point than digits; write for example decimal(2"),
        ("decimal", "is not a decimal; write for example decimal(12, 2)"),
    ],
)
def test_a_form_that_cannot_be_is_refused(kind: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="decimal") as error:
        decimal_form(kind)
    assert sentence in str(error.value)


def test_records_are_shown_with_their_decimals() -> None:
    record = {"a": 105, "b": 7, "c": None, "d": {"a": 1}, "e": None}
    scales = {"a": 2, "c": 2, "d": {"a": 1}, "e": {"a": 1}, "missing": 3, "none": {"a": 1}}
    assert with_decimals(record, scales) == {
        "a": Decimal("1.05"), "b": 7, "c": None, "d": {"a": Decimal("0.1")}, "e": None
    }  # fmt: skip
    assert record["a"] == 105
    listed = {"rows": [{"a": 5, "b": 1}, None], "all": [5, None], "none": None}
    assert with_decimals(listed, {"rows": [{"a": 1}], "all": [2], "none": [1]}) == {
        "rows": [{"a": Decimal("0.5"), "b": 1}, None],
        "all": [Decimal("0.05"), None],
        "none": None,
    }
    assert beyond(listed, {"rows": [{"a": 1}], "all": [2], "none": [1]}) == ""
    assert "a is 1e+30 units" in beyond({"rows": [{"a": 1e30}]}, {"rows": [{"a": 1}]})
    assert str(shown(0, 2)) == "0.00"
    assert str(shown(-(10**30), 2)) == "-1" + "0" * 28 + ".00"


def test_fractions_of_other_fields_are_floats_again() -> None:
    read = {"a": [Decimal("0.1"), {"b": Decimal("1e22")}], "c": 1, "d": Decimal("2.50")}
    found = without_decimals(read)
    assert found == {"a": [0.1, {"b": 1e22}], "c": 1, "d": 2.5}
    assert type(found["d"]) is float
    with pytest.raises(RecordError, match="too large"):
        without_decimals([Decimal("1e999")])


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("10.5", "decimal(12, 2)", 1050),
        (" -1.005 ", "decimal(12, 2)", -100),
        ("1.015", "decimal(12, 2)", 102),
        (1.015, "decimal(12, 2)", 102),
        (2.5, "decimal(3)", 2),
        (7, "decimal(3, 1)", 70),
        ("1e2", "decimal(5, 1)", 1000),
        ("1e-999999", "decimal(5, 1)", 0),
        (0, "decimal(2, 2)", 0),
        (10**17, "decimal(18)", 10**17),
    ],
)
def test_the_nearest_decimal_to_a_number(value: Any, kind: str, expected: int) -> None:
    assert decimal_form(kind).rounded(value) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (100, "decimal(3, 1)"),
        (99.96, "decimal(3, 1)"),
        ("1e999999", "decimal(18)"),
        (10**300, "decimal(18)"),
        (float("nan"), "decimal(3, 1)"),
        (float("-inf"), "decimal(3, 1)"),
        ("", "decimal(3, 1)"),
        ("0x1", "decimal(3, 1)"),
        ("NaN", "decimal(3, 1)"),
        ("1_0", "decimal(3, 1)"),
        ("1" * 5_000, "decimal(3, 1)"),
    ],
)
def test_what_has_no_nearest_decimal_is_refused(value: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=r"it is not a number|it does not fit into"):
        decimal_form(kind).rounded(value)


def test_what_was_shown_becomes_units_again() -> None:
    scales = {"a": 2, "b": [{"c": 0}], "gone": 1}
    record = {"a": 1050, "b": [{"c": 7}, None], "n": "1.5"}
    shown_record = with_decimals(record, scales)
    assert in_units_again(shown_record, scales) == record
    assert in_units_again({"a": "10.50", "b": [{"c": "7"}], "n": 1}, scales) == {
        "a": 1050,
        "b": [{"c": 7}],
        "n": 1,
    }
    assert in_units_again({"a": 10**18, "b": None}, scales) == {"a": 10**18, "b": None}
