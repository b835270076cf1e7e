"""Expressions over decimals, in units."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.expressions.declaration import NullLogic
from millwheel.core.expressions.language import built_in, compile_expression
from millwheel.core.instants.decimals import shown
from millwheel.language.spec.typed.decimals import has_decimals, in_units, scales_of

FIELDS: Any = {
    "price": 2,
    "rate": 4,
    "n": "int",
    "f": "float",
    "s": "str",
    "pair": {"left": {"price": 2}, "n": "int"},
    "rows": [{"price": 2, "n": "int"}],
}


def _made(text: str) -> tuple[str, Any]:
    found = in_units(text, compile_expression(text).tree, FIELDS)
    return found.text, found.kind


@pytest.mark.parametrize(
    ("text", "units", "kind"),
    [
        ("price", "price", 2),
        ("-price", "-price", 2),
        ("price + 1", "price + 100", 2),
        ("price - 0.125", "price * 10 - 125", 3),
        ("price + n", "price + n * 100", 2),
        ("price + rate", "price * 100 + rate", 4),
        ("price * rate", "price * rate", 6),
        ("price * 1.5", "price * 15", 3),
        ("price * -2", "price * -2", 2),
        ("price * n", "price * n", 2),
        ("price / n", "price / (n * 100)", "float"),
        ("price / price", "price / price", "float"),
        ("price // 0.1", "price // 10", "int"),
        ("price % 0.25", "price % 25", 2),
        ("price > 10.5", "price > 1050", "bool"),
        ("price == rate", "price * 100 == rate", "bool"),
        ("0 < price <= 1.005", "0 < price * 10 <= 1005", "bool"),
        ("price in [1, 2.5]", "price in [100, 250]", "bool"),
        ("price != null", "price != null", "bool"),
        ("price is not null and n > 1", "price is not null and n > 1", "bool"),
        ("price if n > 1 else 0", "price if n > 1 else 0", 2),
        ("coalesce(price, 1)", "coalesce(price, 100)", 2),
        ("max(price, rate)", "max(price * 100, rate)", 4),
        ("nullif(price, 0)", "nullif(price, 0)", 2),
        ("between(price, 1, n)", "between(price, 100, n * 100)", "bool"),
        ("abs(price - 1)", "abs(price - 100)", 2),
        ("sign(price)", "sign(price)", "int"),
        ("float(price) * f", "price / 100 * f", ""),
        ("get(price, 1)", "get(price, 100)", 2),
        ("field('price') > 1", "field('price') > 100", "bool"),
        ("has(price)", "has(price)", "bool"),
        ("pair.left.price + 1", "pair.left.price + 100", 2),
        ("pair.left", "pair.left", {"price": 2}),
        ("n + 1", "n + 1", "int"),
        ("f  +  1", "f  +  1", ""),
        ("lower(s)", "lower(s)", "str"),
        ("round(price, 1)", "round(price, -1) // 10", 1),
        ("round(price, -1)", "round(price, -3) // 100", 0),
        ("round(price, 0)", "round(price, -2) // 100", 0),
        ("round(price, 2)", "price", 2),
        ("round(price, 9)", "price", 2),
        ("round(price)", "round(price, -2) // 100", "int"),
        ("floor(price)", "price // 100", "int"),
        ("ceil(price)", "-(-price // 100)", "int"),
        ("int(price)", "quotient(price, 100)", "int"),
        ("mod(price, 0.125)", "mod(price * 10, 125)", 3),
        ("case(n > 1, price, n > 0, rate, 0)", "case(n > 1, price * 100, n > 0, rate, 0)", 4),
        ("case(price > 1.5, s)", "case(price > 150, s)", "str"),
        ("str(price)", "str(decimal_text(price, 2))", "str"),
        ("cast(price, 'text')", "decimal_text(price, 2)", "str"),
        ("cast(price, 'bool')", "cast(price, 'bool')", "bool"),
        ("cast(price, 'int')", "null if price is null else quotient(price, 100)", "int"),
        (
            "cast(pair.left.price, 'float')",
            "null if pair.left.price is null else pair.left.price / 100",
            "float",
        ),
        ("cast(price * 2, 'int')", "quotient(price * 2, 100)", "int"),
        ("cast(s, 'decimal(6, 2)')", "decimal_units(s, 6, 2)", 2),
        ("cast(s, 'decimal(6)', 1)", "decimal_units(s, 6, 0, 1)", 0),
        ("cast(f, 'decimal(6, 2)', 0.5)", "decimal_units(f, 6, 2, 50)", 2),
        ("cast(f, 'decimal(6, 3)', price)", "decimal_units(f, 6, 3, price * 10)", 3),
        ("cast(f, 'decimal(6, 3)', null) + 1", "decimal_units(f, 6, 3, null) + 1000", 3),
        ("cast(rate, 'decimal(6, 2)')", "decimal_units(decimal_text(rate, 4), 6, 2)", 2),
        ("concat(str(price), s)", "concat(str(decimal_text(price, 2)), s)", "str"),
        ("rows[0].price + 1", "rows[0].price + 100", 2),
        ("rows[1:]", "rows[1:]", [{"price": 2, "n": "int"}]),
        ("len(rows)", "len(rows)", "int"),
        ("rows is not null", "rows is not null", "bool"),
        ("pair != null", "pair != null", "bool"),
    ],
)
def test_an_expression_in_units(text: str, units: str, kind: Any) -> None:
    made, found = _made(text)
    assert made == units or compile_expression(made).text == units
    assert found == kind


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("price + f", "`price + f`: f is a float beside a decimal, and the result would be one"),
        ("price > f", "f is a float beside a decimal"),
        ("price * f", "f is a float beside a decimal"),
        ("price + s", "s is a str beside a decimal, which takes whole numbers"),
        ("price > unknown", "unknown is of no known kind beside a decimal. Declare it in fields"),
        ("price ** 2", "`price ** 2` cannot be computed exactly. Write float(…)"),
        ("price * rate * rate * rate * rate * rate", "22 digits behind the point, more than 18"),
        ("lower(price)", "lower takes no decimal"),
        ("sqrt(price)", "Write float(…) for a number with rounding"),
        ("quotient(price, n)", "quotient takes no decimal; abs, between, case, cast, ceil"),
        ("round(price, n)", "the digits of a decimal are a written whole number"),
        ("case(n > 1, price, f)", "f is a float beside a decimal"),
        ("cast(price, 'int', 0)", "cast takes no decimal"),
        ("cast(coalesce(price, null), 'int')", "this may be null. Write int(…) in place of cast"),
        ("cast(rows, 'decimal(6, 2)')", "rows is a record or a list beside a decimal"),
        ("cast(s, 'decimal(6, 2)', 0.125)", "0.125 has more than 2 digits behind the point"),
        ("cast(s, 'decimal(6, 2)', f)", "f is a float beside a decimal"),
        ("rows == pair", "rows is a record or a list beside a decimal"),
        ("[price, 1]", "takes no decimal, and price is or has one"),
        ("pair[0]", "takes no decimal, and pair is or has one"),
        ("get(price, 0.125)", "'price' has 2 digits behind the point, fewer than 0.125"),
        ("pair if n else null", "chooses among records with decimals"),
    ],
)
def test_what_cannot_be_exact_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        _made(text)
    assert sentence in str(error.value)


def test_the_tree_of_the_expression_stays_as_it_is() -> None:
    expression = compile_expression("price + 1")
    in_units(expression.text, expression.tree, FIELDS)
    assert _made("price + 1")[0] == "price + 100"


def test_with_the_nulls_of_sql() -> None:
    text = "between(price, 1, 2) and coalesce(price, 0) is not null"
    made = in_units(text, built_in(NullLogic.SQL).compile(text).tree, FIELDS).text
    run = built_in(NullLogic.SQL).compile(made).evaluate
    assert [run({"price": each}) for each in (100, 201, None)] == [True, False, None]


@given(
    st.sampled_from(
        ["price + rate", "price - rate", "price * rate", "price % 0.3", "price * 1.25 - n",
         "max(price, rate)", "-price + 0.125", "price + rate * n", "round(price, 1)",
         "round(rate, -1)", "mod(price, 0.3)", "case(n > 0, price, rate)"]
    ),
    st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9), st.integers(-100, 100),
)  # fmt: skip
def test_results_are_those_of_exact_arithmetic(text: str, price: int, rate: int, n: int) -> None:
    made, scale = _made(text)
    found = shown(compile_expression(made).evaluate({"price": price, "rate": rate, "n": n}), scale)
    p, r = Decimal(price).scaleb(-2), Decimal(rate).scaleb(-4)
    third = Decimal("0.3")
    expected = {
        "price + rate": p + r,
        "price - rate": p - r,
        "price * rate": p * r,
        "price % 0.3": p - third * (p / third).to_integral_value("ROUND_FLOOR"),
        "price * 1.25 - n": p * Decimal("1.25") - n,
        "max(price, rate)": max(p, r),
        "-price + 0.125": -p + Decimal("0.125"),
        "price + rate * n": p + r * n,
        "round(price, 1)": round(p, 1),
        "round(rate, -1)": round(r, -1),
        "mod(price, 0.3)": p % third,
        "case(n > 0, price, rate)": p if n > 0 else r,
    }[text]
    assert found == expected


@given(
    st.sampled_from(["round(price)", "floor(price)", "ceil(price)", "int(price)", "str(price)",
                     "cast(price, 'int')", "cast(price, 'float')", "cast(price, 'text')"]),
    st.integers(-(10**11), 10**11),
)  # fmt: skip
def test_what_is_no_decimal_any_more_is_exact_too(text: str, price: int) -> None:
    made, _ = _made(text)
    exact = Decimal(price).scaleb(-2)
    acts: dict[str, Any] = {"floor": math.floor, "ceil": math.ceil, "round": round, "str": str}
    casts = {"int": int, "float": float, "text": str}
    name, _, to = text.partition("(")
    act = casts[to.split("'")[1]] if name == "cast" else acts.get(name, int)
    assert compile_expression(made).evaluate({"price": price}) == act(exact)


def test_casts_keep_null() -> None:
    for to in ("int", "float", "text", "bool"):
        assert (
            compile_expression(_made(f"cast(price, '{to}')")[0]).evaluate({"price": None}) is None
        )


def test_scales_are_those_of_the_decimals_alone() -> None:
    assert scales_of(FIELDS) == {
        "price": 2,
        "rate": 4,
        "pair": {"left": {"price": 2}},
        "rows": [{"price": 2}],
    }
    assert not has_decimals({"n": "int", "pair": {"n": "int"}})
