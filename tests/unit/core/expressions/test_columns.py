"""Conditions over columns say, value for value, what they say record by record; or they have no
column form."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millwheel.core.expressions.columns import (
    condition_over_columns,
    fields_computed_with,
    kind_of_number,
    number_over_columns,
    value_over_columns,
)
from millwheel.core.expressions.language import compile_expression
from millwheel.core.expressions.terms import NoColumns
from millwheel.core.lazy_polars import dtype

FIELDS = {"i": "int", "f": "float", "s": "str", "b": "bool"}
ROWS = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
        "f": st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, 2.0**53]),
        "s": st.text(max_size=3),
        "b": st.booleans(),
    }
)
OPS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
LEAVES = st.one_of(
    st.builds("i {} {}".format, OPS, st.integers(0, 3)),
    st.builds("f {} {}".format, OPS, st.sampled_from(["1", "2.5", str(2**53)])),
    st.builds("s {} '{}'".format, OPS, st.sampled_from(["", "a", "b"])),
    st.just("b"),
    st.just("s == s"),
    st.builds("mod(i, {0}) {1} 1".format, st.sampled_from([3, -3, -1, 2**40]), OPS),
    st.builds("quotient(i, 3) {} i // -3".format, OPS),
    st.builds("min(f, 0.0, 2.5) {} -0.0".format, OPS),
    st.builds("i {} -2".format, OPS),
    st.sampled_from(["i != null", "s == None", "f is not None", "b is null"]),
    st.sampled_from(["i in [1, -2]", "s not in ('a', 'ab')", "s in ['']", "'a' in s", "i in []"]),
    st.sampled_from(["0 <= i < 3", "0 < i != 2 <= 5", "'a' < s <= 'b'", "1.5 > f >= -0.0"]),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=5,
)


@given(TREES, st.lists(ROWS, min_size=1, max_size=8))
def test_columns_say_what_rows_say(text: str, rows: list[dict[str, object]]) -> None:
    compiled = compile_expression(text)
    types = {"i": pl.Int64, "f": pl.Float64, "s": pl.String, "b": pl.Boolean}
    found = (
        pl.DataFrame(rows, types)
        .select(condition_over_columns(compiled.tree, FIELDS).alias("x"))["x"]
        .to_list()
    )
    assert found == [compiled.evaluate(row) for row in rows]


@pytest.mark.parametrize(
    "text",
    [
        "i == 'a'",  # never equal in rows, an error in columns
        "i == f",  # a double cannot hold every integer
        f"f == {2**53 + 1}",
        "i + 1 == 2",
        "i",
        "1 < f < i",  # as any of its comparisons
        "other == 1",
        "str(f) == '1.0'",  # another text
        "lower(b) == 'a'",
        "find(s, 'a') == 0",
        "mod(i, j) == 0",  # may be divided by zero
        "abs(i) > 1",  # may not fit 64 bits
        "f * f > 1.0",  # may be no number
        "substr(s, i) == 'a'",
        "startswith('a', 'b')",
        "min(i, f) == 1",
        "i in [1, 2.0]",
        "i in ['1']",
        "f in [0.0]",  # a set has another zero
        "s in s",
        "b in [true]",
        "i not in [9223372036854775808]",
    ],
)
def test_what_columns_could_say_otherwise_has_no_column_form(text: str) -> None:
    with pytest.raises(NoColumns):
        condition_over_columns(compile_expression(text).tree, FIELDS)


NUMBERS = {"i": "int", "j": "int", "f": "float", "g": "float"}
WHOLE = (
    st.integers(-(2**63), 2**63 - 1)
    | st.integers(-3, 3)
    | st.sampled_from([2**31, 2**53, 2**53 + 1, 2**62])
)
REAL = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 0.1, 3.0, 1e200, 2.0**-1074]
)
NUMBER_ROWS = st.fixed_dictionaries({"i": WHOLE, "j": WHOLE, "f": REAL, "g": REAL})
NUMBER_LEAVES = st.sampled_from(["i", "j", "f", "g", "1", "3", "7.0", "0.1", "-2", "0.0"])
CALCULATIONS = st.recursive(
    NUMBER_LEAVES,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("(-{})".format, inner),
        st.builds("({} {})".format, inner, st.sampled_from(["// 7", "% 7", "% -3", "// 1"])),
        st.builds(
            "{}({})".format,
            st.sampled_from(["abs", "floor", "ceil", "round", "sqrt", "float"]),
            inner,
        ),
        st.builds(
            "{}({}, {})".format,
            st.sampled_from(["mod", "quotient", "min", "max"]),
            inner,
            inner | st.sampled_from(["3", "-1", "2.5"]),
        ),
    ),
    max_leaves=6,
)


@given(CALCULATIONS, st.lists(NUMBER_ROWS, min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_arithmetic_over_columns_gives_the_bits_of_rows_or_says_for_which_records_it_may_not(
    text: str, rows: list[dict[str, Any]]
) -> None:
    try:
        compiled = compile_expression(text)
        term = number_over_columns(compiled.tree, NUMBERS)
    except (ValueError, NoColumns):
        assume(False)
    types = {"i": pl.Int64, "j": pl.Int64, "f": pl.Float64, "g": pl.Float64}
    frame = pl.DataFrame(rows, types)
    exact = frame.select(pl.all_horizontal(pl.lit(True), *term.exact).alias("x"))["x"].to_list()
    found = frame.with_columns(term.column.alias("x"))["x"].to_list()
    for row, known, value in zip(
        rows, exact * len(rows) if len(exact) == 1 else exact, found, strict=False
    ):
        if known:
            expected = compiled.evaluate(row)
            assert (type(value), repr(value)) == (type(expected), repr(expected))
            assert term.kind == type(value).__name__


def test_ordinary_numbers_need_no_rows() -> None:
    term = number_over_columns(compile_expression("(i + 1) * f / 3 - j / i").tree, NUMBERS)
    frame = pl.DataFrame({"i": [1, 2**40], "j": [5, -(2**50)], "f": [0.5, 1e9], "g": [1.0, 1.0]})
    assert frame.select(pl.all_horizontal(term.exact).all()).item()
    for row in ({"i": 0}, {"i": 2**62}, {"f": 1e308}, {"j": 2**53 + 1}):
        changed = frame.with_columns(pl.lit(value).alias(name) for name, value in row.items())
        assert not changed.select(pl.all_horizontal(term.exact).all()).item(), row


@pytest.mark.parametrize(
    "text",
    [
        "i % j",
        "i // 0",
        "i // -1",
        "f % 2",
        "f // 2.0",
        "i % 2.0",
        "i ** 2",
        "i / 0",
        "1 + 2",
        "i + true",
        "i + other",
        "round(f, 1)",
        "log(f)",
        "min(i, 1, f)",
        "quotient(f, g)",
        "mod(5, i)",
        "lower(i)",
        "substr(i, 1)",
    ],
)
def test_other_calculations_have_no_column_form(text: str) -> None:
    with pytest.raises(NoColumns):
        number_over_columns(compile_expression(text).tree, NUMBERS)
    assert kind_of_number(text, NUMBERS, compile_expression) == ""


def test_the_kind_of_a_number_is_known_from_its_fields() -> None:
    kinds = {
        text: kind_of_number(text, NUMBERS, compile_expression)
        for text in ("i", "i * j", "i / j", "i + f", "")
    }
    assert kinds == {"i": "int", "i * j": "int", "i / j": "float", "i + f": "float", "": ""}


TEXTS = st.text(max_size=3) | st.sampled_from(
    [
        "7",
        "-12",
        "+3",
        " 7 ",
        "1.5",
        "-0.0",
        "1e3",
        "007",
        "9" * 18,
        "9" * 20,
        "\u0667",
        "true",
        "7\n",
    ]
)
NULLABLE = st.fixed_dictionaries(
    {
        "i": st.none() | WHOLE,
        "j": st.none() | WHOLE,
        "f": st.none() | REAL,
        "s": st.none() | TEXTS,
        "u": st.none() | TEXTS,
        "b": st.none() | st.booleans(),
    }
)
OF_NULLS = [
    "coalesce(i, 0)",
    "coalesce(i, j)",
    "coalesce(i, j, 7) + 1",
    "coalesce(s, u, '-')",
    "upper(coalesce(s, 'none'))",
    "coalesce(nullif(s, ''), u)",
    "coalesce(i / j, 0.5)",
    "coalesce(f, null, 1.5)",
    "coalesce(b, false) and i > 0",
    "nullif(i, 3)",
    "nullif(s, u)",
    "nullif('a', s)",
    "nullif(i, 3) == null",
    "case(i > 0, s)",
    "case(i > 0, s, b, u)",
    "case(i > 0, null, j > 0, i, j)",
    "s if b else null",
    "null if i == 1 else f",
    "coalesce(s if b else null, u)",
    *(f"cast(i, '{kind}')" for kind in ("int", "float", "text", "bool")),
    *(f"cast(f, '{kind}')" for kind in ("int", "float", "bool")),
    *(f"cast(b, '{kind}')" for kind in ("int", "float", "text", "bool")),
    *(f"cast(s, '{kind}')" for kind in ("int", "float", "text")),
    "cast(s, 'int', null)",
    "cast(s, 'int', -1)",
    "coalesce(cast(s, 'int', null), i)",
]


@pytest.mark.parametrize("text", OF_NULLS)
@settings(max_examples=40)
@given(st.lists(NULLABLE, min_size=1, max_size=8))
def test_values_that_may_be_null_are_those_of_rows_where_columns_say_that_they_have_them(
    text: str, rows: list[dict[str, Any]]
) -> None:
    compiled = compile_expression(text)
    kinds = {"i": "int", "j": "int", "f": "float", "s": "str", "u": "str", "b": "bool"}
    term = value_over_columns(compiled.tree, kinds)
    types = {name: dtype(kind) for name, kind in kinds.items()}
    exact = [each.alias(str(number)) for number, each in enumerate(term.exact)]
    found = pl.DataFrame(rows, types).select(term.column.alias("x"), *exact).to_dicts()
    computed = fields_computed_with(compiled.tree)
    for row, values in zip(rows, found, strict=True):
        value = values.pop("x")
        if all(values.values()) and all(row[name] is not None for name in computed):
            wanted = compiled.evaluate(row)
            assert (type(value), repr(value)) == (type(wanted), repr(wanted))


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("coalesce(i, j) + f", {"f"}),
        ("coalesce(i + 1, j)", {"i"}),
        ("upper(coalesce(s, 'x')) == u", {"u"}),
        ("i == null and j > 0", {"j"}),
        ("s", set()),
    ],
)
def test_a_field_that_is_only_chosen_may_be_null(text: str, fields: set[str]) -> None:
    assert fields_computed_with(compile_expression(text).tree) == fields


@pytest.mark.parametrize("text", ["coalesce(i, 0.5)", "case(b, i, s)", "null", "cast(f, 'text')"])
def test_values_of_several_kinds_have_no_column(text: str) -> None:
    with pytest.raises(NoColumns):
        value_over_columns(compile_expression(text).tree, FIELDS)
