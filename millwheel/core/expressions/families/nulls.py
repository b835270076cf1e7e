"""Functions that take nulls, choose, change types, and look into values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from millwheel.core.expressions.declaration import Function, Nulls, table
from millwheel.core.expressions.families.decimals import cast_to_decimal, described, number_of
from millwheel.core.expressions.fields import field_or_none
from millwheel.core.expressions.operators import MAX_TEXT
from millwheel.core.expressions.terms import (
    NULL,
    SAFE_INT,
    NoColumns,
    Term,
    chosen,
    constant_of,
    exact_of,
    kinds,
    null_term,
)
from millwheel.core.instants.decimals import is_decimal
from millwheel.core.lazy_polars import dtype, pl

MAX_WHOLE_DIGITS = 4_300
"""The longest text that ``int`` reads, as in Python."""
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_KINDS = {"int": "int", "float": "float", "text": "str", "bool": "bool"}
_PLAIN_TEXTS = {
    "int": r"^[+-]?[0-9]{1,18}$",
    "float": r"^[+-]?[0-9]{1,15}(\.[0-9]{1,15})?$",
}
"""Texts that Polars reads as Python does: of at most so many digits, without spaces."""
_BY_POLARS = {("int", "float"), ("int", "str"), ("bool", "int"), ("bool", "float"), ("bool", "str")}
_BOOLS = {"true": True, "false": False, "1": True, "0": False}
Thunk = Callable[[], Any]


def _coalesce(*parts: Thunk) -> Any:
    for part in parts:
        value = part()
        if value is not None:
            return value
    return None


def _nullif(value: Any, other: Any) -> Any:
    return None if value is not None and value == other else value


def _case(*parts: Thunk) -> Any:
    """The value behind the first test that holds; the last part alone is the default."""
    for index in range(0, len(parts) - 1, 2):
        if parts[index]():
            return parts[index + 1]()
    return parts[-1]() if len(parts) % 2 else None


def _between(value: Any, low: Any, high: Any) -> bool:
    return bool(low <= value <= high)


def _cast(value: Any, to: Any, *otherwise: Any) -> Any:
    """Null stays null. With ``otherwise``, that replaces a value that cannot be cast."""
    make = _cast_to(to)
    if value is None:
        return None
    try:
        return make(value)
    except (ValueError, OverflowError):
        if otherwise:
            return otherwise[0]
        raise ValueError(f"{described(value)} cannot be cast to {to}") from None


def _cast_to(to: Any) -> Callable[[Any], Any]:
    if isinstance(to, str) and is_decimal(to):
        return cast_to_decimal(to)
    make = _CASTS.get(to) if isinstance(to, str) else None
    if make is None:
        raise ValueError(f"a type is one of {', '.join(_CASTS)} and decimal(12, 2)")
    return make


def _to_int(value: Any) -> int:
    if isinstance(value, str):
        text = value.strip()
        if len(text) > MAX_WHOLE_DIGITS or not _WHOLE.fullmatch(text):
            raise ValueError
        return int(text)
    return int(number_of(value))


def _to_float(value: Any) -> float:
    if isinstance(value, str):
        text = value.strip()
        if len(text) > MAX_WHOLE_DIGITS or not _NUMBER.fullmatch(text):
            raise ValueError
        return float(text)
    return float(number_of(value))


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(number_of(value))


def _to_bool(value: Any) -> bool:
    if isinstance(value, str):
        truth = _BOOLS.get(value.strip().lower()) if len(value) < MAX_TEXT else None
        if truth is None:
            raise ValueError
        return truth
    if isinstance(number_of(value), float) and math.isnan(value):
        raise ValueError
    return bool(value != 0)


_CASTS: Mapping[str, Callable[[Any], Any]] = {
    "int": _to_int,
    "float": _to_float,
    "text": _to_text,
    "bool": _to_bool,
}


def _whole(value: Any) -> int:
    if isinstance(value, (str, bytes)) and len(value) > MAX_WHOLE_DIGITS:
        raise ValueError(f"int() reads up to {MAX_WHOLE_DIGITS} digits")
    return int(value)


def _shown(value: Any) -> str:
    """The value by ``str``, within bounds: of nested lists each further ``str`` would double the
    quotes."""
    if not isinstance(value, str) and _size(value, MAX_TEXT) > MAX_TEXT:
        raise ValueError(f"str() makes texts of up to about {MAX_TEXT:,} characters")
    return str(value)


def _size(value: Any, most: int) -> int:
    """About the characters of ``repr(value)``; counted no further than ``most``."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, int):
        return value.bit_length() // 3
    size = 1
    if isinstance(value, Mapping):
        value = (part for pair in value.items() for part in pair)
    elif not isinstance(value, (list, tuple, set, frozenset)):
        return size
    for part in value:
        size += 1 + _size(part, most - size)
        if size > most:
            break
    return size


def _json(value: Any, *steps: Any) -> Any:
    """Text is parsed first; each step goes one deeper. Null for a missing part."""
    if isinstance(value, (str, bytes)):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as ex:
            raise ValueError(f"{value!r:.80} is not JSON: {ex}") from None
    for step in steps:
        value = _inner(value, step)
        if value is None:
            break
    return value


def _inner(value: Any, step: Any) -> Any:
    if isinstance(step, str):
        return None if isinstance(value, (list, tuple, str)) else field_or_none(step, value)
    if not isinstance(step, int):
        raise TypeError(f"a step is a name or a position, not {type(step).__name__}")
    there = isinstance(value, (list, tuple)) and -len(value) <= step < len(value)
    return value[step] if there else None


def _float_columns(terms: Sequence[Term]) -> Term:
    [term] = terms
    if term.constant is not None or term.kind not in ("int", "float"):
        raise NoColumns
    return Term(term.double, "float", exact=term.exact)


def _text_columns(terms: Sequence[Term]) -> Term:
    [term] = terms
    if term.constant is not None or term.kind not in ("int", "str"):
        raise NoColumns
    return Term(term.column.cast(pl.String), "str", exact=term.exact)


def _case_columns(terms: Sequence[Term]) -> Term:
    result = terms[-1] if len(terms) % 2 else null_term()
    for index in range(len(terms) // 2 * 2 - 2, -1, -2):
        result = chosen(terms[index], terms[index + 1], result)
    return result


def _coalesce_columns(terms: Sequence[Term]) -> Term:
    """``coalesce`` by columns: each argument is computed only where all before it are null."""
    terms = [term for term in terms if term.kind != NULL]
    if len({term.kind for term in terms}) != 1 or terms[0].constant is not None:
        raise NoColumns
    first, exact = terms[0].column, list(terms[0].exact)
    for term in terms[1:]:
        exact += [first.is_not_null() | each for each in term.exact]
        first = pl.coalesce(first, term.column)
    return Term(first, terms[0].kind, exact=tuple(exact), present=(first.is_not_null(),))


def _nullif_columns(terms: Sequence[Term]) -> Term:
    value, other = terms
    kinds(terms, value.kind, value.kind)
    column = pl.when(value.column == other.column).then(None).otherwise(value.column)
    return Term(column, value.kind, exact=exact_of(terms), present=(column.is_not_null(),))


def _cast_columns(terms: Sequence[Term]) -> Term:
    """The cast by columns; text that does not look like a plain number goes by rows."""
    value, to = terms[0], constant_of(terms[1])
    kind = _KINDS.get(to, "")
    if value.constant is not None or value.kind == NULL:
        raise NoColumns
    if any(term.kind not in (NULL, kind) for term in terms[2:]):
        raise NoColumns
    column, exact = value.column, value.exact
    if value.kind == kind:
        return Term(column, kind, exact=exact)
    if value.kind == "str" and kind in _PLAIN_TEXTS:
        plain = column.str.contains(_PLAIN_TEXTS[kind])
        made = pl.when(plain).then(column).cast(dtype(kind), strict=False)
        return Term(made, kind, exact=(*exact, plain))
    if value.kind == "float" and kind == "int":
        fits = column.abs() < SAFE_INT
        made = pl.when(fits).then(column).cast(pl.Int64)
        return Term(made, kind, exact=(*exact, fits))
    if kind == "bool" and value.kind in ("int", "float"):
        return Term(column != 0, kind, exact=exact)
    if (value.kind, kind) in _BY_POLARS:
        return Term(column.cast(dtype(kind)), kind, exact=exact)
    raise NoColumns


def _between_columns(terms: Sequence[Term]) -> Term:
    kind = terms[0].kind
    kinds(terms, kind, kind, kind)
    value, low, high = (term.column for term in terms)
    return Term((low <= value) & (value <= high), "bool", exact=exact_of(terms))


def _kind(value: Any) -> None:
    _cast_to(value)


FUNCTIONS = table(
    Function(
        "coalesce(value: any, more...: any) -> any",
        _coalesce,
        "the first argument that is not null, else null; those behind it are not computed",
        (("coalesce(null, 0, 1)", 0), ("coalesce(null, null)", None)),
        nulls=Nulls.TAKEN,
        lazy=True,
        columns=_coalesce_columns,
    ),
    Function(
        "nullif(value: any, other: any) -> any",
        _nullif,
        "null if both are equal, else the first",
        (("nullif('-', '-')", None), ("nullif('a', '-')", "a")),
        nulls=Nulls.TAKEN,
        columns=_nullif_columns,
    ),
    Function(
        "case(test: any, value: any, more...: any) -> any",
        _case,
        "the value behind the first test that holds: `case(a > 9, 'high', a > 5, 'middle', 'low')`;"
        " the last one alone is for all others, which are null without it",
        (("case(1 > 2, 'a', 2 > 1, 'b', 'c')", "b"), ("case(1 > 2, 'a')", None)),
        nulls=Nulls.TAKEN,
        lazy=True,
        columns=_case_columns,
    ),
    Function(
        "between(value: any, low: any, high: any) -> bool",
        _between,
        "whether it lies between both, or is one of them; as `low <= value <= high`",
        (("between(5, 1, 5)", True), ("between('b', 'c', 'd')", False)),
        columns=_between_columns,
    ),
    Function(
        "cast(value: any, to: text, otherwise?: any) -> any",
        _cast,
        "as `'int'` (cut towards 0), `'float'`, `'text'`, `'bool'` or `'decimal(12, 2)'` (the"
        " nearest). What cannot be cast is an error, or `otherwise` if it is given; null stays"
        " null",
        (
            ("cast(' 7 ', 'int')", 7),
            ("cast('x', 'int', null)", None),
            ("cast(true, 'text')", "true"),
            ("cast('1e3', 'float')", 1000.0),
        ),
        nulls=Nulls.TAKEN,
        checks={"to": _kind},
        columns=_cast_columns,
    ),
    Function(
        "int(value: any) -> int",
        _whole,
        "the whole number of a text or a number, cut towards 0, as in Python",
        (("int('7')", 7), ("int(-2.9)", -2)),
    ),
    Function(
        "float(value: any) -> float",
        float,
        "the number as a float, also of a text, as in Python",
        (("float('0.5')", 0.5),),
        columns=_float_columns,
    ),
    Function(
        "str(value: any) -> text",
        _shown,
        "the text of a value, as in Python",
        (("str(7)", "7"), ("str(0.5)", "0.5")),
        nulls=Nulls.TAKEN,
        columns=_text_columns,
    ),
    Function(
        "json(value: any, step...: any) -> any",
        _json,
        "the part of a JSON text, a map or a list under names and positions, from 0, one step after"
        " another; null where it has nothing. A text that is not JSON is an error",
        (
            ("""json('{"a": [{"b": 7}]}', 'a', 0, 'b')""", 7),
            ("""json('{"a": 1}', 'x', 'y')""", None),
            ("json('[1, 2]')", [1, 2]),
        ),
        nulls=Nulls.TAKEN,
    ),
)
