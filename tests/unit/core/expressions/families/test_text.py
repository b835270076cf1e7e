"""Texts: what the examples of the functions do not say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.expressions.families.text import FUNCTIONS
from millwheel.core.expressions.operators import MAX_TEXT

ACTS = {name: function.act for name, function in FUNCTIONS.items()}


@given(st.text(max_size=6), st.integers(-8, 8), st.integers(0, 8))
def test_a_part_of_a_text_is_that_of_its_slice(text: str, start: int, count: int) -> None:
    begin = max(len(text) + start, 0) if start < 0 else start
    assert ACTS["substr"](text, start, count) == text[begin : begin + count]
    assert ACTS["substr"](text, start) == text[begin:]


@given(st.text(max_size=6), st.integers(0, 9), st.text(min_size=1, max_size=3))
def test_a_filled_text_has_the_length(text: str, length: int, fill: str) -> None:
    left, right = ACTS["lpad"](text, length, fill), ACTS["rpad"](text, length, fill)
    assert len(left) == len(right) == length
    assert left.endswith(text[:length])
    assert right.startswith(text[:length])


def test_no_function_makes_a_text_that_is_too_long() -> None:
    long = "a" * MAX_TEXT
    for name, given_ in (("replace", (long, "a", "bb")), ("lpad", ("a", MAX_TEXT + 1, "b"))):
        with pytest.raises(ValueError, match="would have more than 100,000 characters"):
            ACTS[name](*given_)
    longer = long + "-"
    assert ACTS["replace"](longer, "-", "") == long
    assert ACTS["rpad"](longer, len(longer)) == longer


@pytest.mark.parametrize(
    ("name", "given_", "sentence"),
    [
        ("substr", ("abc", 0, -1), "no negative count"),
        ("lpad", ("a", -1), "not negative"),
        ("lpad", ("a", 2, ""), "nothing to fill with"),
        ("replace", ("a", "", "b"), "no empty text"),
        ("split", ("a", ""), "empty"),
    ],
)
def test_arguments_without_a_meaning_are_refused(
    name: str, given_: tuple[object, ...], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        ACTS[name](*given_)
    with pytest.raises(TypeError, match="needs"):
        ACTS[name](None, *given_[1:])


def test_parts_are_counted_from_both_ends() -> None:
    parts = [ACTS["part"]("a,b,c", ",", index) for index in (0, 2, 3, -1, -3, -4)]
    assert parts == ["a", "c", None, "c", "a", None]
