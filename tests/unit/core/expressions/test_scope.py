"""With the nulls of SQL columns say, to the bit, what rows say, also where a value is null; or say
that they do not know it."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millwheel.core.expressions.columns import (
    number_over_columns,
    truth_over_columns,
    value_over_columns,
)
from millwheel.core.expressions.declaration import Dialect, NullLogic
from millwheel.core.expressions.language import built_in
from millwheel.core.expressions.scope import Scope
from millwheel.core.expressions.terms import NoColumns, Term
from millwheel.core.lazy_polars import dtype
from millwheel.errors import RecordError
from tests.search.forms import steps

SQL = built_in(NullLogic.SQL)
SQL_NULLS = Dialect(NullLogic.SQL)
FIELDS = {"i": "int", "j": "int", "f": "float", "s": "str", "u": "str", "b": "bool"}
WHOLE = st.integers(-3, 9) | st.sampled_from([2**62, -(2**63), 2**63 - 1, 2**53])
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | WHOLE,
            "j": st.none() | WHOLE,
            "f": st.none() | st.sampled_from([0.0, -0.0, 0.5, -2.5, 1e300, 5e-324]),
            "s": st.none() | st.sampled_from(["", "a", "aab", "é", "7", "-1", "x"]),
            "u": st.none() | st.sampled_from(["a", "b"]),
            "b": st.none() | st.booleans(),
        }
    ),
    min_size=1,
    max_size=12,
)
_FUNCTIONS = (
    "cast(s, 'int')",
    "cast(s, 'int', null)",
    "cast(i, 'text')",
    "cast(f, 'int')",
    "coalesce(i / j, f, 0.5)",
    "coalesce(nullif(s, u), 'z')",
    "case(b, i, j > i, j)",
    "abs(i) + mod(i, 3)",
    "mod(i, j)",
    "quotient(i, j)",
    "floor(f)",
    "round(f * 2.0)",
    "len(concat(s, u))",
    "str(i)",
    "substr(lower(s), 1, 2)",
    "part(s, 'a', 1)",
    "regexp_extract(s, '^(a)|b')",
    "year(i)",
    "trunc(i, '1h')",
    "min(i, j)",
    "-i",
    "i // 3 + j % -7",
    "(f if not b else 0.25)",
)
_TRUTHS = (
    "b",
    "not b",
    "i is null or b",
    "not (i > 1 and b)",
    "between(i, 1, j)",
    "not between(i, 1, j)",
    "contains(s, 'a')",
    "s in ('a', 'x')",
    "i not in (1, 2)",
    "startswith(s, 'a') or i / j > 1",
    "b and i / j > 1",
    "-1 < i < 5",
    "like(s, 'a%') is null",
    "coalesce(b, i > 2)",
    "nullif(i, j) >= 0",
)


def agrees(text: str, term: Term, records: list[dict[str, Any]]) -> None:
    """Compares a term with the row form, where it is exact. At least whatever the row form refuses
    is not."""
    frame = pl.DataFrame(records, {name: dtype(kind) for name, kind in FIELDS.items()})
    expression = SQL.compile(text)
    column = frame.select(term.column.alias("x"))["x"] if not term.exact else None
    exact = [True] * len(records)
    if term.exact:
        fits = frame
        indexes = list(range(len(records)))
        for check in term.exact:
            mask = fits.select(check.alias("x"))["x"] if fits.height else pl.Series([], dtype=bool)
            assert not mask.null_count(), text
            fits, indexes = (
                fits.filter(mask),
                [at for at, ok in zip(indexes, mask, strict=True) if ok],
            )
        exact = [at in indexes for at in range(len(records))]
        column = fits.select(term.column.alias("x"))["x"]
    assert column is not None
    found = iter(column.to_list())
    for record, fit in zip(records, exact, strict=True):
        if fit:
            here, there = next(found), expression.evaluate(record)
            assert (type(here), repr(here)) == (type(there), repr(there)), (text, record)


@settings(max_examples=150)
@given(st.sampled_from(_FUNCTIONS), RECORDS)
def test_a_function_has_null_where_rows_have_it(text: str, records: list[dict[str, Any]]) -> None:
    agrees(text, value_over_columns(SQL.compile(text).tree, FIELDS, SQL_NULLS), records)


@settings(max_examples=150)
@given(st.sampled_from(_TRUTHS), RECORDS)
def test_a_truth_holds_where_rows_have_it(text: str, records: list[dict[str, Any]]) -> None:
    term = truth_over_columns(SQL.compile(text).tree, FIELDS, SQL_NULLS)
    agrees(f"true if {text} else false", term, records)


@settings(max_examples=200)
@given(st.randoms(use_true_random=False), RECORDS)
def test_drawn_steps_have_the_values_of_rows(rng: Any, records: list[dict[str, Any]]) -> None:
    text, _ = steps.value(rng, FIELDS)
    text = text.replace("!= null", "is not null")
    try:
        term = value_over_columns(SQL.compile(text).tree, FIELDS, SQL_NULLS)
    except (NoColumns, ValueError):
        return
    if term.constant is None:
        agrees(text, term, records)


@given(st.sampled_from(["i + j", "i / j", "f * 2.0 - i", "coalesce(i, j) * 2"]), RECORDS)
@example("i / j", [{"i": 1, "j": 0, "f": None, "s": None, "u": None, "b": None}])
def test_a_number_is_null_where_rows_have_it(text: str, records: list[dict[str, Any]]) -> None:
    agrees(text, number_over_columns(SQL.compile(text).tree, FIELDS, SQL_NULLS), records)


def test_records_that_rows_refuse_are_not_exact() -> None:
    frame = pl.DataFrame({"i": [1, None, 1], "j": [0, 0, None]}, {"i": pl.Int64, "j": pl.Int64})
    term = value_over_columns(SQL.compile("i / j").tree, FIELDS, SQL_NULLS)
    assert frame.select(pl.all_horizontal(term.exact).alias("x"))["x"].to_list() == [
        False,
        True,
        True,
    ]
    with pytest.raises(RecordError, match="division"):
        SQL.compile("i / j").evaluate({"i": 1, "j": 0})
    assert SQL.compile("i / j").evaluate({"i": None, "j": 0}) is None


def test_without_them_nothing_is_filled() -> None:
    term = Term(pl.col("i"), "int", present=(pl.col("i").is_not_null(),))
    assert Scope({}).taken(term).exact == term.present
    assert Scope({}, SQL_NULLS).taken(term).exact == ()
