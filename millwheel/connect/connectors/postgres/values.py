"""Values of rows in the form that PostgreSQL reads: text, or NULL. The server parses them, and its
errors name the fault.

Times for columns without a zone are converted to UTC first: the server would drop an offset.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec

from millwheel.connect.connectors.postgres.table import TableColumn
from millwheel.errors import RecordError

ZONELESS = frozenset({"timestamp", "date", "time"})
"""Types whose text form may have an offset that the server ignores."""
_ZONED = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[Tt"
    r" ](?P<hour>\d\d):?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?P<fraction>[.,]\d+)?)?"
    r"\s?(?P<zone>[Zz]|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)"
)
_ODD = re.compile(r"\d:\d\d.*?(?P<zone>[+-]\d[\d:]*|[A-Za-z][\w/]*)\s*$", re.DOTALL)
_NO_ZONE = frozenset({"am", "pm", "bc", "ad", "z", "utc", "gmt"})


def without_zone(text: str, base: str) -> str:
    """The same time in UTC without its offset. A text without an offset stays as it is: it is UTC.
    Raises ValueError for an offset in a form that the server would drop, OverflowError for years
    that Python does not have."""
    match = _ZONED.fullmatch(text.strip())
    if match is None:
        odd = _ODD.search(text)
        if odd is not None and odd["zone"].lower() not in _NO_ZONE:
            raise ValueError(
                f"its offset {odd['zone']!r} would be lost; write for example"
                " 2026-01-01T00:00:00+02:00"
            )
        return text
    at = dt.datetime.fromisoformat(match["day"]) + dt.timedelta(
        hours=int(match["hour"]), minutes=int(match["minute"]), seconds=int(match["second"] or 0)
    )
    utc = at - _offset(match["zone"])
    return utc.isoformat() + (match["fraction"] or "").replace(",", ".")


def _offset(zone: str) -> dt.timedelta:
    if zone in "Zz":
        return dt.timedelta(0)
    digits = zone[1:].replace(":", "").ljust(6, "0")
    offset = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:4]), seconds=int(digits[4:]))
    return -offset if zone[0] == "-" else offset


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_json = msgspec.json.Encoder(enc_hook=str, decimal_format="number").encode


def text_of(value: Any, column: TableColumn) -> str | None:
    """Raises RecordError for a value without a text form of the column's type."""
    if value is None:
        return None
    try:
        text = _text(value, column)
    except (OverflowError, TypeError, ValueError) as ex:
        raise RecordError(
            f"column {column.name} ({column.type_name}) cannot hold {value!r:.80}: {ex}"
        ) from None
    if "\0" in text:
        raise RecordError(
            f"column {column.name} ({column.type_name}): PostgreSQL has no text with a NUL byte"
        )
    if wrong := _cut(text, value, column):
        raise RecordError(
            f"column {column.name} ({column.type_name}) cannot hold {value!r:.80}: {wrong}"
        )
    return text


def _cut(text: str, value: Any, column: TableColumn) -> str:
    """The part that the server would cut off in silence, in words; "" for none. Numbers and times
    are rounded to the digits of their column, as its declaration, numeric(10,2), asks for."""
    if column.letters and len(text) > column.letters and column.category == "S":
        ends = text.rstrip(" ") if column.base == "bpchar" else text
        if len(ends) > column.letters:
            return f"value too long for type {column.type_name}"
    if column.base in _MOST_EXACT and type(value) is int and abs(value) > _MOST_EXACT[column.base]:
        return (
            "a floating-point number has no such whole number"
            if not _is_exact(value, column.base)
            else ""
        )
    return ""


# Fixed: up to here every whole number is one of the type
_MOST_EXACT = {"float4": 2**24, "float8": 2**53}


def _is_exact(value: int, base: str) -> bool:
    """Whether a whole number is one of the floating-point numbers of that width."""
    width = 24 if base == "float4" else 53
    # without the zeros at its end
    digits = abs(value) >> ((abs(value) & -abs(value)).bit_length() - 1)
    return digits.bit_length() <= width


def _text(value: Any, column: TableColumn) -> str:
    if column.holds_json:
        return _json(value).decode()
    if isinstance(value, (list, tuple, set)) and column.category == "A":
        return _array(value, column)
    if isinstance(value, (dict, list, tuple, set)):
        return _json(value).decode()
    return _scalar(value, column)


def _scalar(value: Any, column: TableColumn) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and column.holds_time:
        return moment(value)
    if column.base in ZONELESS and isinstance(value, str | dt.datetime | dt.time):
        return without_zone(value if isinstance(value, str) else value.isoformat(), column.base)
    if isinstance(value, float) and column.base in ("int2", "int4", "int8") and value.is_integer():
        return str(int(value))
    if isinstance(value, (bytes, bytearray)):
        return "\\x" + value.hex() if column.base == "bytea" else value.decode()
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    return (
        str(value)
        if isinstance(value, (int, float, str, Decimal))
        else _json(value).decode().strip('"')
    )


def moment(us: int) -> str:
    """A time in µs since 1970 as text."""
    return (_EPOCH + dt.timedelta(microseconds=us)).isoformat()


def _array(values: Sequence[Any] | set[Any], column: TableColumn) -> str:
    """An array literal: every element is quoted, so that none can be misread."""
    parts = []
    for value in values:
        if value is None:
            parts.append("NULL")
        elif isinstance(value, (list, tuple)):
            parts.append(_array(value, column))
        else:
            text = (
                _json(value).decode()
                if isinstance(value, Mapping)
                else _scalar(value, _element(column))
            )
            parts.append('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
    return "{" + ",".join(parts) + "}"


def _element(column: TableColumn) -> TableColumn:
    """The elements of an array have the type behind the underscore."""
    return replace(column, base=column.base[1:], category="")
