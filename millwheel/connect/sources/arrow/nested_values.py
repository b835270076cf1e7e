"""Lists, structs and maps of Arrow as plain data."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millwheel.core.instants.numbers import day_text, scaled_us
from millwheel.errors import RecordError

Convert = Callable[[Any], Any]
TIMES: dict[str, tuple[int, int]] = {
    "s": (1_000_000, 1),
    "ms": (1_000, 1),
    "us": (1, 1),
    "ns": (1, 1_000),
}
"""By unit of time: the factor and the divisor that give µs."""
DAY_MS = 86_400_000  # Fixed: of a date64


def nested_values(column: pa.Array) -> tuple[list[Any], dict[int, str]]:
    """The values of a nested column: times and durations in µs, dates as ISO text, decimals as
    floats; maps are lists of pairs. And the errors of values that cannot be converted, by number;
    these values are None."""
    # As stored numbers and bytes: objects of Python would not hold all values.
    raw, convert = column.view(_stored(column.type)), _converter(column.type)
    values: list[Any] = []
    wrong: dict[int, str] = {}
    for index, value in enumerate(raw.to_pylist()):
        try:
            values.append(convert(value))
        except RecordError as ex:
            values.append(None)
            wrong[index] = str(ex)
    return values, wrong


def is_time(kind: pa.DataType) -> bool:
    """Whether a type is a number of some unit of time."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    )


def as_bytes(kind: pa.DataType) -> pa.DataType:
    """The type of the bytes of a text."""
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    return pa.binary() if pa.types.is_string(kind) else pa.binary_view()


def text_of(data: bytes) -> str:
    """Raises RecordError for bytes that are not a text."""
    try:
        return data.decode()
    except UnicodeDecodeError as ex:
        raise RecordError(f"the text {data[:80]!r} is not UTF-8: {ex.reason}") from None


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type with times and dates as numbers, and texts as bytes."""
    if is_time(kind) or pa.types.is_date(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if is_text(kind):
        return as_bytes(kind)
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_stored(part.type)) for part in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_stored(kind.value_type), kind.list_size)
    make = next((make for check, make in _LISTS if check(kind)), None)
    return kind if make is None else make(_stored(kind.value_type))


_LISTS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]]] = [
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
]


def _converter(kind: pa.DataType) -> Convert:
    convert = _convert_of(kind)
    return lambda value: None if value is None else convert(value)


def _convert_of(kind: pa.DataType) -> Convert:
    if is_time(kind):
        times, by = TIMES[kind.unit]
        return lambda value: scaled_us(value, times, by)
    if pa.types.is_date(kind):
        return (lambda value: day_text(value // DAY_MS)) if kind.bit_width > 32 else day_text
    if is_text(kind):
        return text_of
    if pa.types.is_struct(kind):
        parts = [(part.name, _converter(part.type)) for part in kind.fields]
        return lambda value: {name: of(value[name]) for name, of in parts}
    if pa.types.is_map(kind):
        key_of, item_of = _converter(kind.key_type), _converter(kind.item_type)
        return lambda value: [(key_of(key), item_of(item)) for key, item in value]
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        one = _converter(kind.value_type)
        return lambda value: list(map(one, value))
    return float if pa.types.is_decimal(kind) else _same


def _same(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value
