"""Conditions over columns say, value for value, what they say record by record; or they have no column form."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.expressions import NoColumns, condition_over_columns
from millwheel.core.expressions.language import compile_expression

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
    found = pl.DataFrame(rows, types).select(condition_over_columns(compiled.tree, FIELDS).alias("x"))["x"].to_list()
    assert found == [compiled.evaluate(row) for row in rows]


@pytest.mark.parametrize(
    "text",
    [
        "i == 'a'",  # never equal in rows, an error in columns
        "i == f",  # a double cannot hold every integer
        f"f == {2**53 + 1}",
        "i + 1 == 2",
        "i",
        "1 < i < 3",
        "other == 1",
        "lower(s) == 'a'",
        "i == null",
        "i in [1, 2]",
    ],
)
def test_what_columns_could_say_otherwise_has_no_column_form(text: str) -> None:
    with pytest.raises(NoColumns):
        condition_over_columns(compile_expression(text).tree, FIELDS)
