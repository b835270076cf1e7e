"""The functions of expressions: total, or an error that becomes a record's."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.expressions.functions import FUNCTIONS, MAX_POWER_BITS, Function, modulo, power
from millwheel.core.expressions.nodes import RUNTIME_ERRORS

VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers())
)


@given(st.sampled_from(sorted(FUNCTIONS)), st.data())
def test_whatever_a_function_is_given_it_answers_or_raises_what_becomes_a_record_error(
    name: str, data: Any
) -> None:
    function = FUNCTIONS[name]
    count = data.draw(st.integers(function.least, min(function.most, 3)))
    with contextlib.suppress(RUNTIME_ERRORS):
        function.act(*(data.draw(VALUES) for _ in range(count)))


@given(st.integers(), st.integers(-(10**9), 10**9))
def test_no_power_of_whole_numbers_takes_for_ever(base: int, exponent: int) -> None:
    try:
        found = power(base, exponent)
    except (ValueError, ArithmeticError):
        return
    assert not isinstance(found, int) or found.bit_length() <= MAX_POWER_BITS + 1
    assert found == base**exponent


def test_percent_is_a_remainder_and_no_language_of_its_own() -> None:
    assert modulo(7, 4) == 3
    for text in ("%s", b"%s"):
        with pytest.raises(TypeError, match="numbers only"):
            modulo(text, 1)


def test_how_many_arguments_in_words() -> None:
    words = [
        Function(len).arity,
        Function(len, 2, 2).arity,
        Function(len, 1, 2).arity,
        Function(len, 1, 100).arity,
    ]
    assert words == ["1 argument", "2 arguments", "1 to 2 arguments", "at least 1 arguments"]


def test_a_pattern_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"the pattern '\(' is no regular expression"):
        FUNCTIONS["matches"].act("text", "(")
