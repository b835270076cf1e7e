"""Many times in ISO 8601 text at once: the forms of most systems, by arithmetic on bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from millwheel.core.instants.numbers import DAY_US
from millwheel.core.model.times import SECOND

_LAYOUT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?P<fraction>\.[0-9]+)?(?P<offset>Z|[+-][0-9]{2}(?P<colon>:?)[0-9]{2})?)?"
)
_MOST_LENGTHS = 12  # of texts: a fraction without its last zeros has up to ten
_CLOCK, _FRACTION = 11, 20  # Fixed: where these begin in 2026-01-31T12:30:45.123
_MICRO_DIGITS = 6  # Fixed: of a second
_ZERO = ord("0")
_Numbers = npt.NDArray[np.int64]
_NOTHING: _Numbers = np.zeros(1, np.int64)
"""A zero for every text."""


class _Otherwise(Exception):
    """Some text has none of these forms."""


def texts_us(texts: Sequence[str]) -> _Numbers | None:
    """:func:`millwheel.core.instants.texts.text_us` of each; None where some text must be looked at
    by itself."""
    lengths = {*map(len, texts)}
    try:
        if len(lengths) == 1:
            return _of_one_length(texts)
        if len(lengths) > _MOST_LENGTHS:
            return None
        times, sizes = np.empty(len(texts), np.int64), np.fromiter(map(len, texts), np.int64)
        for length in lengths:
            indexes = np.flatnonzero(sizes == length)
            times[indexes] = _of_one_length([texts[index] for index in indexes.tolist()])
        return times
    except _Otherwise:
        return None


def _of_one_length(texts: Sequence[str]) -> _Numbers:
    layout = _LAYOUT.fullmatch(texts[0])
    data = "".join(texts).encode("ascii", "replace")
    if layout is None or not layout.group().isascii():
        raise _Otherwise
    rows = np.frombuffer(data, np.uint8).reshape(len(texts), len(texts[0]))
    columns = np.ascontiguousarray(rows.T)
    _same(columns, texts[0], (4, 7))
    days = _days(_number(columns, 0, 4), _number(columns, 5, 2), _number(columns, 8, 2))
    if len(texts[0]) < _CLOCK:
        return days * DAY_US
    if not ((columns[_CLOCK - 1] == ord("T")) | (columns[_CLOCK - 1] == ord(" "))).all():
        raise _Otherwise
    _same(columns, texts[0], (13, 16))
    hour, minute, second = (_number(columns, _CLOCK + at, 2) for at in (0, 3, 6))
    _below(hour, 24)
    _below(minute, 60)
    _below(second, 60)
    seconds = (hour * 60 + minute) * 60 + second - _offsets(columns, texts[0], layout)
    return days * DAY_US + seconds * SECOND + _micros(columns, texts[0], layout)


def _days(year: _Numbers, month: _Numbers, day: _Numbers) -> _Numbers:
    """Days since 1970. Raises _Otherwise for days that do not exist."""
    _below(year - 1, 9_999)
    _below(month - 1, 12)
    months = (year - 1970) * 12 + month - 1
    first, following = (
        each.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        for each in (months, months + 1)
    )
    days: _Numbers = first + day - 1
    if not ((day >= 1) & (days < following)).all():
        raise _Otherwise
    return days


def _micros(columns: npt.NDArray[np.uint8], first: str, layout: re.Match[str]) -> _Numbers:
    digits = len(layout["fraction"] or "") - 1
    if digits < 0:
        return _NOTHING
    _same(columns, first, (_FRACTION - 1,))
    kept = min(digits, _MICRO_DIGITS)
    _number(columns, _FRACTION + kept, digits - kept)  # cut off, but digits
    scale: int = 10 ** (_MICRO_DIGITS - kept)
    return _number(columns, _FRACTION, kept) * scale


def _offsets(columns: npt.NDArray[np.uint8], first: str, layout: re.Match[str]) -> _Numbers:
    """Seconds ahead of UTC."""
    if not layout["offset"]:
        return _NOTHING
    at = layout.start("offset")
    if layout["offset"] == "Z":
        _same(columns, first, (at,))
        return _NOTHING
    sign, colon = columns[at], len(layout["colon"])
    if not ((sign == ord("+")) | (sign == ord("-"))).all():
        raise _Otherwise
    if colon:
        _same(columns, first, (at + 3,))
    hours, minutes = _number(columns, at + 1, 2), _number(columns, at + 3 + colon, 2)
    _below(hours, 24)
    _below(minutes, 60)
    seconds: _Numbers = (hours * 60 + minutes) * 60
    seconds[sign == ord("-")] *= -1
    return seconds


def _number(columns: npt.NDArray[np.uint8], at: int, digits: int) -> _Numbers:
    numbers = np.zeros(columns.shape[1], np.int64)
    for column in columns[at : at + digits]:
        digit = column - _ZERO  # what lies below wraps around
        _below(digit, 10)
        numbers *= 10
        numbers += digit
    return numbers


def _below(numbers: npt.NDArray[np.int64] | npt.NDArray[np.uint8], limit: int) -> None:
    if numbers.min() < 0 or numbers.max() >= limit:
        raise _Otherwise


def _same(columns: npt.NDArray[np.uint8], first: str, indexes: Sequence[int]) -> None:
    for at in indexes:
        if not (columns[at] == ord(first[at])).all():
            raise _Otherwise
