"""The nulls of SQL, in the row form: what is computed with null is null, and what is unknown is
unknown as DuckDB has it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.expressions.declaration import NullLogic, Nulls, OwnFunction
from millwheel.core.expressions.functions import FUNCTIONS
from millwheel.core.expressions.language import Language, built_in, compile_expression
from millwheel.errors import RecordError

SQL = built_in(NullLogic.SQL)
RECORD = {"n": None, "s": None, "b": True, "one": 1, "list": [1, None], "map": {"a": None}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n + 1", None),
        ("-n", None),
        ("2 ** n", None),
        ("n == 1", None),
        ("n != n", None),
        ("not n", None),
        ("b and n > 1", None),
        ("b or n > 1", True),
        ("n > 1 or n < 1", None),
        ("n > 1 and not b", False),
        ("one and 2", True),
        ("n is null", True),
        ("n is not None", False),
        ("n in (1, 2)", None),
        ("one in (1, null)", True),
        ("one in (2, null)", None),
        ("one not in (2, null)", None),
        ("one not in (2, 3)", True),
        ("2 in list", None),
        ("'a' in s", None),
        ("contains(s, 'a')", None),
        ("contains(list, 1)", True),
        ("contains(list, 5)", None),
        ("between(n, 1, 5)", None),
        ("between(5, 6, n)", False),
        ("not between(5, 6, n)", True),
        ("1 < n < 0", None),
        ("9 < one < n", False),
        ("1 if n else 2", 2),
        ("case(n, 1, not n, 2, 3)", 3),
        ("coalesce(n + 1, 7)", 7),
        ("nullif(one, n)", 1),
        ("nullif(n, one)", None),
        ("cast(n, 'int', 5)", None),
        ("cast('x', 'int', n)", None),
        ("str(n)", None),
        ("lower(null)", None),
        ("round(1.5, n)", None),
        ("concat('a', s)", None),
        ("substr('abc', 1, n)", None),
        ("s[1:]", None),
        ("'abc'[:n]", None),
        ("'abc'[1:]", "bc"),
        ("'abc'[:2]", "ab"),
        ("list[n]", None),
        ("map.a.b", None),
        ("json(s, 'a')", None),
        ("min(one, n)", None),
        ("has(n)", False),
        ("get(n, 5)", 5),
    ],
)
def test_what_is_computed_with_null_is_null_and_logic_has_three_values(
    text: str, value: Any
) -> None:
    found = SQL.compile(text).evaluate(RECORD)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_gives_null_for_null_but_those_that_choose(name: str) -> None:
    function = FUNCTIONS[name]
    if function.lazy:
        return
    text = f"{name}({', '.join(['n', *['s'] * (function.least - 1)])})"
    assert SQL.compile(text).evaluate(RECORD) is None
    if function.nulls is Nulls.REFUSED:
        with pytest.raises(RecordError):
            compile_expression(text).evaluate(RECORD)


@pytest.mark.parametrize("text", ["n == null", "null != s", "n == None", "1 < 2 == null"])
def test_a_comparison_that_finds_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"column \d+: with `nulls: sql` nothing is equal to null"):
        SQL.compile(text)
    compile_expression(text)


@pytest.mark.parametrize(
    "text", ["n + 1 / (one - 1)", "1 / (one - 1) + n", "n > 1 and 1 / (one - 1) > 1"]
)
def test_an_error_beside_null_is_an_error(text: str) -> None:
    with pytest.raises((RecordError, ValueError), match="division"):
        SQL.compile(text).evaluate(RECORD)


def test_what_stands_behind_a_part_that_decides_is_not_computed() -> None:
    assert SQL.compile("one > 1 and 1 / (one - 1) > 1").evaluate(RECORD) is False
    assert SQL.compile("1 > one > 1 / (one - 1)").evaluate(RECORD) is False
    assert SQL.compile("coalesce(one, 1 / (one - 1))").evaluate(RECORD) == 1


def test_a_missing_field_is_no_null() -> None:
    with pytest.raises(RecordError, match="no field 'gone'"):
        SQL.compile("gone + 1").evaluate(RECORD)
    assert SQL.compile("get(gone, null) + 1").evaluate(RECORD) is None


def test_a_function_of_the_users_gets_nulls() -> None:
    own = {"told": OwnFunction("told", lambda value: value is None)}
    assert Language(own, NullLogic.SQL).compile("told(n)").evaluate(RECORD) is True


# --- as DuckDB has it -----------------------------------------------------------------------------

Pair = tuple[str, str]
"""An expression, here and in SQL."""
NUMBERS: st.SearchStrategy[Pair] = st.recursive(
    st.sampled_from([("i", "i"), ("j", "j"), ("2", "2"), ("null", "NULL::BIGINT")]),
    lambda inner: st.one_of(
        st.tuples(inner, inner, st.sampled_from("+-*")).map(
            lambda p: (f"({p[0][0]} {p[2]} {p[1][0]})", f"({p[0][1]} {p[2]} {p[1][1]})")
        ),
        st.tuples(inner, inner).map(
            lambda p: (f"coalesce({p[0][0]}, {p[1][0]})", f"coalesce({p[0][1]}, {p[1][1]})")
        ),
        st.tuples(inner, inner).map(
            lambda p: (f"nullif({p[0][0]}, {p[1][0]})", f"nullif({p[0][1]}, {p[1][1]})")
        ),
        st.tuples(inner).map(lambda p: (f"abs({p[0][0]})", f"abs({p[0][1]})")),
    ),
    max_leaves=4,
)
_EQUAL = {"==": "=", "!=": "<>"}


def _truths(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    chosen = st.tuples(inner, NUMBERS, NUMBERS, NUMBERS)
    return st.one_of(
        st.tuples(inner, inner, st.sampled_from(["and", "or"])).map(
            lambda p: (f"({p[0][0]} {p[2]} {p[1][0]})", f"({p[0][1]} {p[2]} {p[1][1]})")
        ),
        inner.map(lambda p: (f"(not {p[0]})", f"(NOT {p[1]})")),
        inner.map(lambda p: (f"({p[0]} is null)", f"({p[1]} IS NULL)")),
        chosen.map(
            lambda p: (
                f"(case({p[0][0]}, {p[1][0]}, {p[2][0]}) < {p[3][0]})",
                f"(CASE WHEN {p[0][1]} THEN {p[1][1]} ELSE {p[2][1]} END < {p[3][1]})",
            )
        ),
        chosen.map(
            lambda p: (
                f"(({p[1][0]} if {p[0][0]} else {p[2][0]}) <= {p[3][0]})",
                f"(CASE WHEN {p[0][1]} THEN {p[1][1]} ELSE {p[2][1]} END <= {p[3][1]})",
            )
        ),
    )


TRUTHS: st.SearchStrategy[Pair] = st.recursive(
    st.one_of(
        st.just(("b", "b")),
        st.tuples(
            NUMBERS.filter(lambda p: p[0] != "null"),
            NUMBERS.filter(lambda p: p[0] != "null"),
            st.sampled_from(["==", "!=", "<", ">="]),
        ).map(
            lambda p: (
                f"({p[0][0]} {p[2]} {p[1][0]})",
                f"({p[0][1]} {_EQUAL.get(p[2], p[2])} {p[1][1]})",
            )
        ),
        st.tuples(NUMBERS, NUMBERS, NUMBERS).map(
            lambda p: (
                f"between({p[0][0]}, {p[1][0]}, {p[2][0]})",
                f"({p[0][1]} BETWEEN {p[1][1]} AND {p[2][1]})",
            )
        ),
        st.tuples(NUMBERS, st.sampled_from(["in", "not in"]), NUMBERS).map(
            lambda p: (
                f"({p[0][0]} {p[1]} (1, {p[2][0]}, -1))",
                f"({p[0][1]} {p[1].upper()} (1, {p[2][1]}, -1))",
            )
        ),
        st.sampled_from([("like(s, 'a%')", "(s LIKE 'a%')"), ("(s < 'b')", "(s < 'b')")]),
    ),
    _truths,
    max_leaves=5,
)
SMALL = st.none() | st.integers(-2, 2)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "i": SMALL,
            "j": SMALL,
            "s": st.none() | st.sampled_from(["", "a", "ab", "c"]),
            "b": st.none() | st.booleans(),
        }
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100)
@given(st.lists(TRUTHS, min_size=1, max_size=4), RECORDS)
def test_a_truth_is_what_duckdb_says(pairs: list[Pair], records: list[dict[str, Any]]) -> None:
    duckdb = pytest.importorskip("duckdb")
    base = duckdb.connect()
    base.execute("CREATE TABLE t (nr INT, i BIGINT, j BIGINT, s VARCHAR, b BOOLEAN)")
    base.executemany(
        "INSERT INTO t VALUES (?, ?, ?, ?, ?)",
        [[at, *(record[name] for name in "ijsb")] for at, record in enumerate(records)],
    )
    for text, sql in pairs:
        told = base.execute(f"SELECT {sql} FROM t ORDER BY nr").fetchall()
        expression = SQL.compile(text)
        assert [expression.evaluate(record) for record in records] == [row[0] for row in told], text
