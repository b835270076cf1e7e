"""The language of ``where:``: what it can say, how fast paths agree with the rest, and what it
refuses."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.expressions.language import compile_expression, foreign_formula, formula_of
from millwheel.errors import RecordError

RECORD = {
    "type": "click",
    "cost": 2.5,
    "status": 404,
    "path": "/a/b",
    "tags": ["x", "y"],
    "user": {"country": "FR"},
    "none": None,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cost", 2.5),
        ("type == 'click'", True),
        ("type != 'click'", False),
        ("status >= 400", True),
        ("status < 400", False),
        ("400 <= status < 500", True),
        ("400 <= status < 404", False),
        ("type == 'click' and cost > 1", True),
        ("type == 'view' or cost > 1", True),
        ("type == 'view' or cost > 3 or status == 404", True),
        ("type == 'click' and cost > 1 and status == 1", False),
        ("not type == 'click'", False),
        ("cost * 2 + 1", 6.0),
        ("status // 100", 4),
        ("status % 100", 4),
        ("-cost", -2.5),
        ("2 ** 10", 1024),
        ("type in ('click', 'view')", True),
        ("type not in ['click', 'view']", False),
        ("'b' in path", True),
        ("tags[1] == 'y'", True),
        ("user.country", "FR"),
        ("user['country']", "FR"),
        ("'high' if cost > 2 else 'low'", "high"),
        ("none is None", True),
        ("none == null", True),
        ("(status > 400) == true", True),
        ("lower('ABC') == 'abc' and upper(type) == 'CLICK'", True),
        ("startswith(path, '/a') and endswith(path, 'b')", True),
        ("contains(tags, 'x')", True),
        ("matches(path, '^/[a-z]+/')", True),
        ("min(cost, 1) + max(cost, 9) + abs(-1)", 11),
        ("round(cost + 0.04, 1)", 2.5),
        ("len(tags)", 2),
        ("path[1:] + path[:2] + path[-1:]", "a/b/ab"),
        ("tags[:1] + tags[status:]", ["x"]),
        ("json(user, 'country') + part(path, '/', 2)", "FRb"),
        ("int('7') + float('0.5')", 7.5),
        ("has(cost) and not has('missing') and not has(none)", True),
        ("get(missing, 7)", 7),
        ("get(cost, 7)", 2.5),
        ("field('path')", "/a/b"),
        ("status\n  + 1", 405),
    ],
)
def test_an_expression_computes_what_it_says(text: str, expected: Any) -> None:
    assert compile_expression(text).evaluate(RECORD) == expected


def test_fields_are_listed_once_in_order() -> None:
    assert compile_expression("b > a and b < get(c, field('d-e'))").fields == ("b", "a", "c", "d-e")


def test_a_plain_field_is_known_as_one() -> None:
    assert compile_expression("cost").is_field
    assert not compile_expression("true").is_field
    assert not compile_expression("cost + 1").is_field


@pytest.mark.parametrize(
    "text",
    [
        "type > 3",
        "none + 1",
        "cost / (status - 404)",
        "tags[9]",
        "int(type)",
        "lower(cost)",
        "status ** 100000",
        "path % 3",
        "type * (status * 100000)",
        "matches(path, '(' + path)",
        "cost in status",
        "sqrt(0 - cost)",
    ],
)
def test_values_that_do_not_fit_are_record_errors_that_quote_the_expression(text: str) -> None:
    expression = compile_expression(text)
    with pytest.raises(RecordError, match="cannot be computed"):
        expression.evaluate(RECORD)


_numbers = st.one_of(
    st.integers(-5, 5), st.floats(-5, 5), st.none(), st.text(max_size=2), st.booleans()
)


@given(
    value=_numbers,
    constant=st.integers(-5, 5),
    op=st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
)
def test_fast_comparisons_agree_with_the_general_way(value: Any, constant: int, op: str) -> None:
    fast, slow = (
        compile_expression(f"a {op} {constant}"),
        compile_expression(f"(a {op} {constant}) and true or false"),
    )
    results = []
    for expression in (fast, slow):
        try:
            results.append(bool(expression.evaluate({"a": value})))
        except RecordError:
            results.append("error")
    assert results[0] == results[1]


@given(st.text(alphabet="ab1(). '\"[]=<>!&|+-*/%,:{}~^\n\t\\#@;éfielhasgtlnr_", max_size=40))
def test_any_text_compiles_or_is_a_value_error_and_evaluates_or_is_a_record_error(
    text: str,
) -> None:
    try:
        expression = compile_expression(text)
    except ValueError:
        return
    with contextlib.suppress(RecordError):
        expression.evaluate({"a": 1, "b": "x"})


# Formulas: what a formula reads, and formulas that read nothing.


def test_a_formula_names_what_it_reads_in_the_order_of_its_text_and_each_once() -> None:
    formula = formula_of("b.x / a.y + b.x - c")
    assert formula.used == (("b", "x"), ("a", "y"), ("c", ""))
    assert formula.computations == ("b", "a", "c")


@pytest.mark.parametrize("formula", ["1 + 1", "clicks + clicks.n"])
def test_formulas_that_ask_nothing_or_are_not_clear_are_refused(formula: str) -> None:
    with pytest.raises(ValueError, match="write"):
        formula_of(formula)


def test_a_formula_of_a_client_may_call_only_what_has_a_bounded_cost() -> None:
    assert foreign_formula("a.x + 1").used == (("a", "x"),)
    assert formula_of("matches(a.x, b.y)").computations == ("a", "b")
    with pytest.raises(ValueError, match="matches"):
        foreign_formula("matches(a.x, b.y)")
