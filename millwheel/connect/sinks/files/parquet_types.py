"""The types of columns, as ``fields`` names them: ``timestamp``, ``decimal(18, 2)``,
``list<struct<id: int>>``.

Records hold plain data, which is converted to the types of the columns: µs since 1970 or ISO 8601
text to a timestamp or a date, a number or text to a decimal, a map to a struct. A value that does
not fit is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

import pyarrow as pa

from millwheel.core.instants.numbers import object_us
from millwheel.core.instants.texts import text_us
from millwheel.errors import RecordError

PLAIN = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bool": pa.bool_()}
_OTHER = {"timestamp": pa.timestamp("us", tz="UTC"), "date": pa.date32(), "bytes": pa.binary()}
NAMES = (
    "int, float, str, bool, timestamp, date, bytes, decimal(PRECISION, SCALE), list<TYPE>,"
    " struct<NAME: TYPE, …>"
)
_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\d+|[<>(),:])")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOST_DIGITS = 38  # Fixed: of a decimal of 128 bits
Convert = Callable[[Any], Any]


@cache
def column_type(text: str) -> pa.DataType:
    """The type that a text names. Raises ValueError, with a sentence, when there is none."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise ValueError(f"{text!r}; write one of {NAMES}")
    try:
        kind, rest = _parsed(tokens)
    except (IndexError, KeyError, ValueError):
        raise ValueError(f"{text!r}; write one of {NAMES}") from None
    if rest:
        raise ValueError(f"{text!r}; write one of {NAMES}")
    return kind


def _parsed(tokens: list[str]) -> tuple[pa.DataType, list[str]]:
    name, rest = tokens[0], tokens[1:]
    if name == "decimal":
        opened, precision, comma, scale, closed, *rest = rest
        if (opened, comma, closed) != ("(", ",", ")") or not int(scale) <= int(
            precision
        ) <= _MOST_DIGITS:
            raise ValueError
        return pa.decimal128(int(precision), int(scale)), rest
    if name == "list":
        inner, rest = _parsed(_after("<", rest))
        return pa.list_(inner), _after(">", rest)
    if name == "struct":
        return _struct(_after("<", rest))
    return {**PLAIN, **_OTHER}[name], rest


def _struct(tokens: list[str]) -> tuple[pa.DataType, list[str]]:
    fields = []
    while True:
        name, tokens = tokens[0], _after(":", tokens[1:])
        kind, tokens = _parsed(tokens)
        fields.append((name, kind))
        if tokens[0] == ">":
            return pa.struct(fields), tokens[1:]
        tokens = _after(",", tokens)


def _after(token: str, tokens: list[str]) -> list[str]:
    if tokens[0] != token:
        raise ValueError(token)
    return tokens[1:]


def converter(kind: pa.DataType) -> Convert | None:
    """Converts plain data to values that Arrow takes for a column of the type; None for types that
    need no conversion."""
    if kind in PLAIN.values():
        return None
    if pa.types.is_timestamp(kind):
        return _timestamp
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_struct(kind):
        return _map(kind)
    return _list(kind) if pa.types.is_list(kind) else _bytes


def as_column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column of a type that needs conversion."""
    convert = converter(kind) or _fit(kind)
    return pa.array([convert(value) for value in values], kind)


def _timestamp(value: Any) -> datetime | None:
    try:
        if isinstance(value, str):
            value = text_us(value)
        elif isinstance(value, date):
            value = object_us(value, 1)
        return _EPOCH + timedelta(microseconds=value) if type(value) is int else None
    except (RecordError, OverflowError):
        return None


def _date(value: Any) -> date | None:
    moment = _timestamp(value)
    return None if moment is None else moment.date()


def _decimal(kind: pa.DataType) -> Convert:
    quantum = Decimal(1).scaleb(-kind.scale)

    def convert(value: Any) -> Decimal | None:
        if not isinstance(value, (int, float, str, Decimal)) or isinstance(value, bool):
            return None
        try:
            number = Decimal(str(value)).quantize(quantum)
        except InvalidOperation:
            return None
        return (
            number
            if number.is_finite() and len(number.as_tuple().digits) <= kind.precision
            else None
        )

    return convert


def _map(kind: pa.DataType) -> Convert:
    parts = [
        (kind.field(index).name, _of(kind.field(index).type)) for index in range(kind.num_fields)
    ]

    def convert(value: Any) -> dict[str, Any] | None:
        return (
            {name: part(value.get(name)) for name, part in parts}
            if isinstance(value, dict)
            else None
        )

    return convert


def _list(kind: pa.DataType) -> Convert:
    one = _of(kind.value_type)
    return lambda value: (
        [one(part) for part in value] if isinstance(value, (list, tuple, set, frozenset)) else None
    )


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    return value if isinstance(value, bytes) else None


def _of(kind: pa.DataType) -> Convert:
    return converter(kind) or _fit(kind)


def _fit(kind: pa.DataType) -> Convert:
    types: Any = {pa.int64(): int, pa.float64(): (float, int), pa.string(): str, pa.bool_(): bool}[
        kind
    ]

    def convert(value: Any) -> Any:
        fits = isinstance(value, types) and (kind == pa.bool_() or not isinstance(value, bool))
        if fits and kind == pa.int64() and not -(2**63) <= value < 2**63:
            return None
        return value if fits else None

    return convert
