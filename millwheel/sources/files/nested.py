"""Lists, structs and maps of Arrow as plain data."""

from __future__ import annotations

import contextlib
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_US = timedelta(microseconds=1)


def plain_values(column: pa.Array) -> list[Any]:
    """The values of a nested column: times and durations in µs, dates as ISO text, decimals as floats; maps are
    lists of pairs."""
    with contextlib.suppress(pa.ArrowException):  # it does not cast parts of all types; most values are in µs anyway
        column = column.cast(_in_us(column.type), safe=False)
    return [_plain(value) for value in column.to_pylist()]


def _in_us(kind: pa.DataType) -> pa.DataType:
    """The type with times in µs, since Python has no finer ones."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _in_us(part.type)) for part in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _in_us(kind.item_type))
    return pa.list_(_in_us(kind.value_type)) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=timezone.utc)) - _EPOCH) // _US
    if isinstance(value, timedelta):
        return value // _US
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
