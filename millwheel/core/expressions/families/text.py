"""Functions of text. Positions count characters (code points) from 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from millwheel.core.expressions.declaration import Function, table
from millwheel.core.expressions.operators import MAX_TEXT
from millwheel.core.expressions.terms import NoColumns, Term, constant_of, exact_of, kinds
from millwheel.core.lazy_polars import pl

_CODE_POINTS = 0x110000  # Fixed: of Unicode
MAX_LETTERS = 1_000
"""The most letters that ``trim`` takes: each end of a text is compared with all of them."""


def text_of(value: Any) -> str:
    """The value, if it is text. Raises TypeError."""
    if isinstance(value, str):
        return value
    raise TypeError(f"needs text, not {'null' if value is None else type(value).__name__}")


def whole_of(value: Any) -> int:
    """The value, if it is a whole number. Raises TypeError."""
    if isinstance(value, int):
        return value
    raise TypeError(f"needs a whole number, not {type(value).__name__}")


def substring(text: Any, start: Any, count: Any = None) -> str:
    """From a position on, ``count`` characters. A negative start counts from the end, as in
    ``text[-3:]``."""
    whole, begin = text_of(text), whole_of(start)
    if begin < 0:
        begin = max(len(whole) + begin, 0)
    if count is None:
        return whole[begin:]
    if whole_of(count) < 0:
        raise ValueError("substr() takes no negative count")
    return whole[begin : begin + whole_of(count)]


def _replace(text: Any, old: Any, new: Any) -> str:
    whole, before, after = text_of(text), text_of(old), text_of(new)
    if not before:
        raise ValueError("replace() takes no empty text as old")
    if len(after) > len(before):
        _fits(len(whole) + whole.count(before) * (len(after) - len(before)), len(whole))
    return whole.replace(before, after)


def _fits(length: int, before: int) -> None:
    if length > max(MAX_TEXT, before):
        raise ValueError(f"the text would have more than {MAX_TEXT:,} characters")


def _separator(value: Any) -> str:
    if not text_of(value):
        raise ValueError("it is empty")
    return str(value)


def _split(text: Any, separator: Any) -> list[str]:
    return text_of(text).split(_separator(separator))


def _part(text: Any, separator: Any, index: Any) -> str | None:
    parts, index = _split(text, separator), whole_of(index)
    return parts[index] if -len(parts) <= index < len(parts) else None


def _pad(text: Any, length: Any, fill: Any) -> tuple[str, str]:
    """The text, cut at the length, and the filling that it lacks."""
    text, length, fill = text_of(text), whole_of(length), text_of(fill)
    if length < 0:
        raise ValueError("a length is not negative")
    _fits(length, len(text))
    lacks = length - len(text)
    if lacks > 0 and not fill:
        raise ValueError("there is nothing to fill with")
    return text[:length], (fill * (lacks // len(fill) + 1))[:lacks] if lacks > 0 else ""


def _lpad(text: Any, length: Any, fill: Any = " ") -> str:
    kept, missing = _pad(text, length, fill)
    return missing + kept


def _rpad(text: Any, length: Any, fill: Any = " ") -> str:
    kept, missing = _pad(text, length, fill)
    return kept + missing


def _concat(*parts: Any) -> str:
    return "".join([text_of(part) for part in parts])


def _letters(value: Any) -> str:
    if len(text_of(value)) > MAX_LETTERS:
        raise ValueError(f"trim() takes up to {MAX_LETTERS:,} letters")
    return str(value)


def _in_text(name: str) -> Callable[[Sequence[Term]], Term]:
    """A test whether a text has another one, as Polars calls it."""

    def columns(terms: Sequence[Term]) -> Term:
        kinds(terms, "str", "str")
        text, part = (term.column for term in terms)
        options = {"literal": True} if name == "contains" else {}
        return Term(getattr(text.str, name)(part, **options), "bool", exact=exact_of(terms))

    return columns


def _cased(polars: str, python: Callable[[str], str]) -> Callable[[Sequence[Term]], Term]:
    """A change of case: ASCII by Polars; other texts by Python, whose tables of letters are of
    another version of Unicode."""

    def run(texts: pl.Series) -> pl.Series:
        letters: pl.Series = getattr(texts.str, polars)()
        other = (texts.str.len_bytes() != texts.str.len_chars()).arg_true()
        if not len(other):
            return letters
        cased = [python(text) for text in texts.gather(other).to_list()]
        return letters.scatter(other, pl.Series(cased, dtype=pl.String))

    def columns(terms: Sequence[Term]) -> Term:
        kinds(terms, "str")
        return Term(
            terms[0].column.map_batches(run, pl.String, is_elementwise=True),
            "str",
            exact=exact_of(terms),
        )

    return columns


@cache
def _blanks() -> str:
    """The characters that ``str.strip`` removes: more than Unicode's white space."""
    return "".join(filter(str.isspace, map(chr, range(_CODE_POINTS))))


def _strip_columns(terms: Sequence[Term]) -> Term:
    kinds(terms, "str")
    return Term(terms[0].column.str.strip_chars(_blanks()), "str", exact=exact_of(terms))


def _length_columns(terms: Sequence[Term]) -> Term:
    kinds(terms, "str")
    return Term(terms[0].column.str.len_chars().cast(pl.Int64), "int", exact=exact_of(terms))


def _substring_columns(terms: Sequence[Term]) -> Term:
    kinds([terms[0]], "str")
    start, count = (
        constant_of(terms[1]),
        constant_of(terms[2]) if len(terms) > 2 else None,
    )
    if type(start) is not int or start < 0 or (count is not None and type(count) is not int):
        raise NoColumns
    if count is not None and count < 0:
        raise NoColumns
    return Term(terms[0].column.str.slice(start, count), "str", exact=exact_of(terms))


def _replace_columns(terms: Sequence[Term]) -> Term:
    """``replace`` by columns, where no result can be too long."""
    kinds(terms, "str", "str", "str")
    old, new = constant_of(terms[1]), constant_of(terms[2])
    if not old or len(new) > len(old):
        raise NoColumns
    return Term(
        terms[0].column.str.replace_all(old, new, literal=True), "str", exact=exact_of(terms)
    )


def _part_columns(terms: Sequence[Term]) -> Term:
    """The part by columns; null where there is no such part."""
    kinds([terms[0]], "str")
    separator, index = constant_of(terms[1]), constant_of(terms[2])
    if not separator or type(index) is not int:
        raise NoColumns
    parts = terms[0].column.str.split(separator)
    part = parts.list.get(index, null_on_oob=True)
    return Term(part, "str", exact=terms[0].exact, present=(part.is_not_null(),))


def _concat_columns(terms: Sequence[Term]) -> Term:
    kinds(terms, *["str"] * len(terms))
    return Term(pl.concat_str([term.column for term in terms]), "str", exact=exact_of(terms))


FUNCTIONS = table(
    Function(
        "lower(text: text) -> text",
        lambda text: text_of(text).lower(),
        "small letters",
        (("lower('ÀB')", "àb"),),
        columns=_cased("to_lowercase", str.lower),
    ),
    Function(
        "upper(text: text) -> text",
        lambda text: text_of(text).upper(),
        "capital letters",
        (("upper('straße')", "STRASSE"),),
        columns=_cased("to_uppercase", str.upper),
    ),
    Function(
        "strip(text: text) -> text",
        lambda text: text_of(text).strip(),
        "without white space at both ends",
        (("strip('  a b ')", "a b"),),
        columns=_strip_columns,
    ),
    Function(
        "trim(text: text, letters?: text) -> text",
        lambda text, letters=None: text_of(text).strip(
            None if letters is None else _letters(letters)
        ),
        f"without white space, or any of up to {MAX_LETTERS:,} letters, at both ends",
        (("trim(' a ')", "a"), ("trim('--a-b-', '-')", "a-b")),
        checks={"letters": _letters},
        columns=_strip_columns,
    ),
    Function(
        "len(value: any) -> int",
        len,
        "the number of characters, or of entries of a list",
        (("len('漢字')", 2), ("len(('a', 'b'))", 2)),
        columns=_length_columns,
    ),
    Function(
        "length(text: text) -> int",
        lambda text: len(text_of(text)),
        "the number of characters",
        (("length('漢字')", 2),),
        columns=_length_columns,
    ),
    Function(
        "startswith(text: text, prefix: text) -> bool",
        lambda text, prefix: text_of(text).startswith(text_of(prefix)),
        "whether it begins so",
        (("startswith('/a/b', '/a')", True),),
        columns=_in_text("starts_with"),
    ),
    Function(
        "endswith(text: text, suffix: text) -> bool",
        lambda text, suffix: text_of(text).endswith(text_of(suffix)),
        "whether it ends so",
        (("endswith('/a/b', '/a')", False),),
        columns=_in_text("ends_with"),
    ),
    Function(
        "contains(whole: any, part: any) -> bool",
        lambda whole, part: part in whole,
        "whether a text has another one in it, or a list an entry; as `part in whole`",
        (("contains('robot', 'bot')", True), ("contains((1, 2), 3)", False)),
        columns=_in_text("contains"),
    ),
    Function(
        "find(text: text, part: text) -> int",
        lambda text, part: text_of(text).find(text_of(part)),
        "the position of its first occurrence; -1 for none",
        (("find('añb', 'b')", 2), ("find('a', 'x')", -1)),
    ),
    Function(
        "substr(text: text, start: int, count?: int) -> text",
        substring,
        "the characters from a position on, as `text[start:start + count]`; a negative start"
        " counts from the end",
        (("substr('漢字かな', 1, 2)", "字か"), ("substr('abc', -2)", "bc")),
        columns=_substring_columns,
    ),
    Function(
        "replace(text: text, old: text, new: text) -> text",
        _replace,
        "each `old` replaced by `new`",
        (("replace('a-b-c', '-', '')", "abc"),),
        checks={"old": _separator},
        columns=_replace_columns,
    ),
    Function(
        "split(text: text, separator: text) -> list",
        _split,
        "the parts between separators",
        (("split('a,b,', ',')", ["a", "b", ""]),),
        checks={"separator": _separator},
    ),
    Function(
        "part(text: text, separator: text, index: int) -> text",
        _part,
        "one of the parts of `split`, from 0, or from the end by -1; null where there is none",
        (("part('/a/b', '/', 1)", "a"), ("part('a', '/', 5)", None)),
        checks={"separator": _separator},
        columns=_part_columns,
    ),
    Function(
        "concat(text: text, more...: text) -> text",
        _concat,
        "texts, one after another; `str(x)` makes a text of a number",
        (("concat('a', '-', 'b')", "a-b"),),
        columns=_concat_columns,
    ),
    Function(
        "lpad(text: text, length: int, fill?: text) -> text",
        _lpad,
        "filled on the left to a length, or cut at it",
        (("lpad('7', 3, '0')", "007"), ("lpad('abcd', 3)", "abc")),
    ),
    Function(
        "rpad(text: text, length: int, fill?: text) -> text",
        _rpad,
        "filled on the right to a length, or cut at it",
        (("rpad('7', 3, '.')", "7.."),),
    ),
)
