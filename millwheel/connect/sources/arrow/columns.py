"""Columns of Arrow as plain columns, and the rows whose value cannot be converted.

Every conversion of a time is here, or for parts of values in
:mod:`millwheel.connect.sources.arrow.nested_values`: Arrow's own ones wrap around at the ends of 64
bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millwheel.connect.sources.arrow.nested_values import (
    DAY_MS,
    TIMES,
    as_bytes,
    is_text,
    is_time,
    text_of,
)
from millwheel.core.instants.decimals import DecimalForm
from millwheel.core.instants.numbers import FIRST_DAY, LAST_DAY, beyond, no_date
from millwheel.errors import RecordError

_NONE: Mapping[int, str] = {}
_DIGITS = 38  # Fixed: of a decimal of 128 bits


class Plain(NamedTuple):
    """A column, and the reasons why values of some rows, which are null there, cannot be
    converted."""

    column: pa.Array
    wrong: Mapping[int, str] = _NONE


def plain(column: pa.Array, as_text: bool = False) -> Plain:
    """A column in plain types. Timestamps, times and durations become µs, rounded down, and dates
    ISO text. Decimals become floats or, with ``as_text``, text with all digits. Nested ones stay as
    they are."""
    kind = column.type
    if is_time(kind):
        return _times(column)
    if pa.types.is_date(kind):
        return _dates(column)
    if is_text(kind):
        return _texts(column)
    if pa.types.is_decimal(kind):
        return Plain(column.cast(pa.string() if as_text else pa.float64()))
    if pa.types.is_float16(kind):
        return Plain(column.cast(pa.float32()))
    return (
        plain(column.dictionary_decode(), as_text)
        if pa.types.is_dictionary(kind)
        else Plain(column)
    )


def units_of(column: pa.Array, form: DecimalForm) -> pa.Array | None:
    """A column of decimals as whole units of a form; None where a value has no room there, or the
    column is another one."""
    if not pa.types.is_decimal(column.type):
        return None
    try:
        scaled = column.cast(pa.decimal128(_DIGITS, form.scale))
        whole = pa.Array.from_buffers(
            pa.decimal128(_DIGITS, 0), len(scaled), scaled.buffers(), offset=scaled.offset
        )
        units = whole.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    most = pc.max(pc.abs(units)).as_py() or 0
    return units if most < 10**form.precision else None


def _times(column: pa.Array) -> Plain:
    times, by = TIMES[column.type.unit]
    numbers = _numbers(column)
    if times == by:
        return Plain(_with_nulls(numbers, column))
    if by > 1:
        return Plain(_with_nulls(numbers // by, column))  # Arrow would round towards 1970
    most = np.iinfo(np.int64).max // times
    bad = _rows((numbers > most) | (numbers < -most))
    numbers[bad] = 0
    return _without(
        _with_nulls(numbers * times, column), {row: beyond(column[row].value, times) for row in bad}
    )


def _dates(column: pa.Array) -> Plain:
    numbers = _numbers(column)
    days = numbers // DAY_MS if column.type.bit_width > 32 else numbers
    bad = _rows((days < FIRST_DAY) | (days > LAST_DAY))
    wrong = {row: no_date(int(days[row])) for row in bad}
    days[bad] = 0
    return _without(
        _with_nulls(days.astype(np.int32), column).view(pa.date32()).cast(pa.string()), wrong
    )


def _texts(column: pa.Array) -> Plain:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        data = column.view(as_bytes(column.type)).to_pylist()
        wrong: dict[int, str] = {}
        texts: list[str | None] = []
        for row, value in enumerate(data):
            try:
                texts.append(None if value is None else text_of(value))
            except RecordError as ex:
                texts.append(None)
                wrong[row] = str(ex)
        return Plain(pa.array(texts, pa.large_string()), wrong)
    return Plain(column)


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """The numbers that a column of times is stored as, 0 where it is null."""
    stored = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    numbers: npt.NDArray[np.int64] = (
        stored.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    )
    copy: npt.NDArray[np.int64] = numbers.copy()
    return copy


def _with_nulls(numbers: npt.NDArray[np.integer], column: pa.Array) -> pa.Array:
    return pa.array(
        numbers, mask=column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    )


def _rows(mask: npt.NDArray[np.bool_]) -> list[int]:
    rows: list[int] = np.flatnonzero(mask).tolist()
    return rows


def _without(column: pa.Array, wrong: Mapping[int, str]) -> Plain:
    """The column with null in these rows."""
    if not wrong:
        return Plain(column)
    there = np.ones(len(column), np.bool_)
    there[list(wrong)] = False
    return Plain(pc.if_else(pa.array(there), column, pa.scalar(None, column.type)), wrong)
