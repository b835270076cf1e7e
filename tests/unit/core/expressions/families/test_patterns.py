"""Patterns: LIKE is judged by a plain definition of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.expressions.families.patterns import FUNCTIONS

LIKE = FUNCTIONS["like"].act


def _plainly(text: str, pattern: str) -> bool:
    """The definition, which tries everything."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == "%":
        return any(_plainly(text[at:], rest) for at in range(len(text) + 1))
    if first == "\\" and rest:
        first, rest = rest[0], rest[1:]
    elif first == "_":
        return bool(text) and _plainly(text[1:], rest)
    return text[:1] == first and _plainly(text[1:], rest)


@given(st.text("ab%_\\\n.*", max_size=7), st.text("ab%_\\.\n", max_size=6))
def test_like_is_as_sql_defines_it(text: str, pattern: str) -> None:
    assert LIKE(text, pattern) is _plainly(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "holds"),
    [
        ("a\\%b", True),
        ("a\\_b", False),
        ("a_b", True),
        ("%", True),
        ("A%", False),
        ("a%b%b", False),
    ],
)
def test_a_backslash_takes_the_meaning_away(pattern: str, holds: bool) -> None:
    assert LIKE("a%b", pattern) is holds


def test_what_stands_for_what_was_found_exists() -> None:
    replaced, extracted = FUNCTIONS["regexp_replace"].act, FUNCTIONS["regexp_extract"].act
    assert replaced("ab", "(a)(b)", r"\2\1") == "ba"
    with pytest.raises(ValueError, match="cannot stand for what is replaced"):
        replaced("ab", "(a)", r"\7")
    with pytest.raises(ValueError, match="no group 7"):
        extracted("ab", "(a)", 7)
    assert extracted("ab", "(x)?b", 1) is None
    with pytest.raises(ValueError, match=r"the pattern '\(' is not a regular expression"):
        FUNCTIONS["matches"].act("text", "(")
