"""Functions of patterns: regular expressions, and those of SQL's LIKE, whose cost has a bound."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from millwheel.core.expressions.declaration import Function, table
from millwheel.core.expressions.families.text import text_of
from millwheel.core.expressions.terms import (
    NoColumns,
    Term,
    by_text,
    constant_of,
    exact_of,
    kinds,
)

MAX_LIKE = 200
"""The longest pattern of ``like``: a text is compared with it from each of its positions."""
_ESCAPE = "\\"


@lru_cache(maxsize=256)
def pattern_of(text: str) -> re.Pattern[str]:
    """The compiled regular expression. Raises ValueError."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as ex:
        raise ValueError(f"the pattern {text!r:.80} is not a regular expression: {ex}") from None


def _matches(text: Any, pattern: Any) -> bool:
    return pattern_of(text_of(pattern)).search(text_of(text)) is not None


def _extract(text: Any, pattern: Any, group: Any = None) -> Any:
    compiled = pattern_of(text_of(pattern))
    match = compiled.search(text_of(text))
    if group is None:
        group = min(compiled.groups, 1)
    try:
        return None if match is None else match[group]
    except IndexError:
        raise ValueError(f"the pattern has no group {group!r:.80}") from None


def _replace(text: Any, pattern: Any, new: Any) -> str:
    try:
        return pattern_of(text_of(pattern)).sub(text_of(new), text_of(text))
    except (re.error, IndexError) as ex:
        raise ValueError(f"{new!r:.80} cannot stand for what is replaced: {ex}") from None


@lru_cache(maxsize=256)
def _like_pieces(pattern: str) -> tuple[tuple[str | None, ...], ...]:
    """The pieces between the ``%`` of a pattern: their characters, None for any one."""
    if len(pattern) > MAX_LIKE:
        raise ValueError(f"a pattern of like() has up to {MAX_LIKE} characters")
    pieces: list[list[str | None]] = [[]]
    letters = iter(pattern)
    for letter in letters:
        if letter == "%":
            pieces.append([])
        elif letter == "_":
            pieces[-1].append(None)
        else:
            pieces[-1].append(next(letters, _ESCAPE) if letter == _ESCAPE else letter)
    return tuple(map(tuple, pieces))


@lru_cache(maxsize=256)
def _like_search(pattern: str) -> tuple[re.Pattern[str], ...]:
    """Each piece as a regular expression without repetitions, so that nothing is tried twice."""
    return tuple(
        re.compile("".join("." if each is None else re.escape(each) for each in piece), re.DOTALL)
        for piece in _like_pieces(pattern)
    )


def _like(text: Any, pattern: Any) -> bool:
    """Whether a text matches a pattern: the first piece stands at the beginning, the last at the
    end, each other one at its first occurrence behind the one before."""
    text, searches = text_of(text), _like_search(text_of(pattern))
    if len(searches) == 1:
        return searches[0].fullmatch(text) is not None
    begin = searches[0].match(text)
    end = len(text) - len(_like_pieces(pattern)[-1])
    if begin is None or end < begin.end() or searches[-1].match(text, end) is None:
        return False
    position = begin.end()
    for search in searches[1:-1]:
        match = search.search(text, position, end)
        if match is None:
            return False
        position = match.end()
    return True


def _like_columns(terms: Sequence[Term]) -> Term:
    """``like`` by columns, for ``x``, ``x%``, ``%x`` and ``%x%``."""
    kinds(terms, "str", "str")
    try:
        pieces = _like_pieces(constant_of(terms[1]))
    except ValueError:
        raise NoColumns from None
    words = [None if None in piece else "".join(filter(None, piece)) for piece in pieces]
    text = terms[0].column
    if len(words) == 1 and words[0] is not None:
        return Term(text == words[0], "bool", exact=exact_of(terms))
    if None in words or sum(map(bool, words)) > 1 or len(words) > 3:
        raise NoColumns
    begin, end = words[0] or "", words[-1] or ""
    fits = text.str.starts_with(begin) & text.str.ends_with(end)
    if len(words) == 3:
        fits = fits & text.str.contains(words[1] or "", literal=True)
    return Term(fits, "bool", exact=exact_of(terms))


def _constant_pattern(terms: Sequence[Term]) -> re.Pattern[str]:
    kinds(terms[:2], "str", "str")
    try:
        return pattern_of(constant_of(terms[1]))
    except ValueError:
        raise NoColumns from None


def _matches_columns(terms: Sequence[Term]) -> Term:
    search = _constant_pattern(terms).search
    column = by_text(lambda text: search(text) is not None, terms[0].column, "bool")
    return Term(column, "bool", exact=terms[0].exact)


def _extract_columns(terms: Sequence[Term]) -> Term:
    """``extract`` by columns; null where nothing is found."""
    compiled = _constant_pattern(terms)
    group = constant_of(terms[2]) if len(terms) > 2 else min(compiled.groups, 1)
    if type(group) is not int or not 0 <= group <= compiled.groups:
        raise NoColumns

    def first(text: str) -> str | None:
        match = compiled.search(text)
        return None if match is None else match[group]

    column = by_text(first, terms[0].column, "str")
    return Term(column, "str", exact=terms[0].exact, present=(column.is_not_null(),))


def _group(value: Any) -> None:
    if value < 0:
        raise ValueError("a group is its number, from 0")


# Python's engine may take exponential time. One in linear time has other classes of characters
# and no references, so the same text would mean two things; patterns are for pipelines and named
# queries instead.
FUNCTIONS = table(
    Function(
        "like(text: text, pattern: text) -> bool",
        _like,
        "SQL's LIKE: `%` stands for any text, `_` for any character, a backslash before either for"
        f" itself; up to {MAX_LIKE} characters",
        (("like('shoes-42', 'shoes-__')", True), ("like('a', '%b%')", False)),
        checks={"pattern": _like_pieces},
        columns=_like_columns,
    ),
    Function(
        "matches(text: text, pattern: text) -> bool",
        _matches,
        "whether a regular expression of Python is found in it",
        (("matches('/a/b', '^/[a-z]+/')", True),),
        checks={"pattern": pattern_of},
        bounded=False,
        columns=_matches_columns,
    ),
    Function(
        "regexp_extract(text: text, pattern: text, group?: int) -> text",
        _extract,
        "the match of a regular expression's first group, or of the group with a number (0: all);"
        " null where nothing is found",
        (
            ("regexp_extract('a=1&b=2', '(?:^|&)b=([^&]*)')", "2"),
            ("regexp_extract('a', '(x)')", None),
            ("regexp_extract('ab12', '([a-z]+)([0-9]+)', 2)", "12"),
        ),
        checks={"pattern": pattern_of, "group": _group},
        bounded=False,
        columns=_extract_columns,
    ),
    Function(
        "regexp_replace(text: text, pattern: text, new: text) -> text",
        _replace,
        r"each occurrence replaced; `\1` in `new` is the match of the first group",
        (("regexp_replace('a1b22', '[0-9]+', '#')", "a#b#"),),
        checks={"pattern": pattern_of},
        bounded=False,
    ),
)
