"""What the parts of an expression mean, and what is not part of the language."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.expressions.declaration import NullLogic
from millwheel.core.expressions.language import MAX_LENGTH, built_in, compile_expression
from millwheel.core.expressions.operators import MAX_POWER_BITS, modulo, power
from millwheel.errors import RecordError


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("# nothing", "column 1"),
        ("type = 'click'", "column 1: compare with == instead of ="),
        ("type = 'a' and x == 1", "compare with =="),
        ("a && b", "column 4: write `and` instead of &&"),
        ("a LIKE 'x%'", "column 1: write like.field, 'a%'"),
        ("a BETWEEN 1 AND 5", "column 1: write between.field, low, high"),
        ("CASE WHEN a > 3 THEN 1 END", "write case.condition, value, …, otherwise"),
        ("a || b", "write `or`"),
        ("!a", "write `not`"),
        ("a AND b", "small letters"),
        ("$a > 1", "without \\$"),
        ("type == 'click", "close its quote"),
        ("a +", "not an expression"),
        ("lenn(a)", "unknown function 'lenn'; did you mean 'len'"),
        ("a.lower()", "write lower\\(field\\)"),
        ("len()", "len\\(\\) takes 1 argument, not 0"),
        ("round(a, 1, 2)", "takes 1 to 2 arguments"),
        ("has(1)", "takes the name of a field"),
        ("field(a)", "takes the name of a field"),
        ("len(a, key=b)", "plain arguments"),
        ("a | b", "bit operators"),
        ("~a", "write `not`"),
        ("a is 5", "write == or !="),
        ("a[1:2:3]", "no step"),
        ("lambda: 1", "a lambda cannot be used"),
        ("[x for x in y]", "a comprehension cannot be used"),
        ("f'{a}'", "an f-string cannot be used"),
        ("{'a': 1}", "a map cannot be used"),
        ("b'x'", "neither a number nor text"),
        ("a.__class__", "not a field that can be read"),
        ("__import__('os')", "unknown function"),
        ("__builtins__", "not a field that can be read"),
        ("(a + 1)(b)", "cannot be called"),
        ("1 / 0 + a", "fails for every record"),
        ("a > 1 and 9 ** 9 ** 9", "fails for every record"),
        ("a" * (MAX_LENGTH + 1), "characters"),
        ("+".join("a" * 900), "parts"),
        ("(" * 400 + "a" + ")" * 400, "not an expression"),
        ("a\0b", "null bytes"),
        ("import os", "not an expression"),
        ("a; b", "not an expression"),
    ],
)
def test_what_is_not_in_the_language_is_refused_with_column_and_hint(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        compile_expression(text)


def test_the_column_is_that_of_the_users_text() -> None:
    with pytest.raises(ValueError, match="column 14: unknown function"):
        compile_expression("cost > 1 and foo(cost)")


@pytest.mark.parametrize("name", ["__class__", "__dict__", "__init__", "__struct_fields__"])
@pytest.mark.parametrize("call", ["field('{}')", "get('{}', 1)", "has('{}')", "get({}, 1)"])
def test_what_belongs_to_a_class_is_no_field(name: str, call: str) -> None:
    with pytest.raises(ValueError, match="not a field that can be read"):
        compile_expression(call.format(name))


def test_fields_of_change_streams_may_begin_with_underscores() -> None:
    assert compile_expression("field('__deleted')").evaluate({"__deleted": "true"}) == "true"


def test_of_an_object_only_fields_are_read() -> None:
    class Row:
        _hidden, shown = 1, 2

    assert compile_expression("get('shown', 0)").evaluate(Row()) == 2
    assert compile_expression("get('_hidden', 0)").evaluate(Row()) == 0
    with pytest.raises(RecordError, match="no field '_hidden'"):
        compile_expression("field('_hidden')").evaluate(Row())


@pytest.mark.parametrize("nulls", NullLogic)
def test_a_written_fraction_beside_a_decimal_is_what_is_written(nulls: NullLogic) -> None:
    compile_text = built_in(nulls).compile
    row = {"price": Decimal("0.10"), "n": 3, "f": 0.5}
    for text, expected in (
        ("price * 1.1", Decimal("0.110")),
        ("0.3 - price", Decimal("0.20")),
        ("price + 1.5 > 1.55", True),
        ("floor(price * 25.0)", 2),
        ("n * 0.5", 1.5),
    ):
        found = compile_text(text).evaluate(row)
        assert (type(found), found) == (type(expected), expected)
    with pytest.raises(RecordError, match="unsupported operand"):
        compile_text("price * f").evaluate(row)


# operators.py: Operators with bounded results.


@given(st.integers(), st.integers(-(10**9), 10**9))
def test_no_power_of_whole_numbers_takes_for_ever(base: int, exponent: int) -> None:
    try:
        found = power(base, exponent)
    except (ValueError, ArithmeticError):
        return
    assert not isinstance(found, int) or found.bit_length() <= MAX_POWER_BITS + 1
    assert found == base**exponent


def test_a_power_is_a_real_number() -> None:
    with pytest.raises(ValueError, match="not a real number"):
        power(-8, 0.5)


def test_percent_is_a_remainder_and_no_language_of_its_own() -> None:
    assert modulo(7, 4) == 3
    for text in ("%s", b"%s"):
        with pytest.raises(TypeError, match="numbers only"):
            modulo(text, 1)
