"""Times as numbers of a unit, and as objects of Python: the one place that takes them for µs.
Nothing wraps around."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

from millwheel.core.model.times import SECOND
from millwheel.errors import RecordError

LIMIT_US = 2**62  # Fixed: half of all time, so that windows around any record fit
DAY_US = 86_400 * SECOND  # Fixed: UTC has no leap seconds here
EPOCH_DAY = date(1970, 1, 1).toordinal()
FIRST_DAY, LAST_DAY = date.min.toordinal() - EPOCH_DAY, date.max.toordinal() - EPOCH_DAY
"""Days since 1970 that dates can have: 0001-01-01 and 9999-12-31."""
_INT64 = 2**63  # Fixed: whole numbers from here on are not an int64
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_US = timedelta(microseconds=1)
_SHOWN = 80  # characters of a text that are repeated
NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
"""A number in decimal digits, as a text."""
_FROM_US, _TO_US = 631_152_000 * SECOND, 4_102_444_800 * SECOND  # Fixed: 1990 and 2100
_LIKELY = {"s": SECOND, "ms": 1_000}  # Fixed: µs of a unit
NO_UNIT = "nothing states the unit of the timestamp "
"""The beginning of the reason for a record whose timestamp, a number, is very likely in another
unit than µs."""


def number_us(number: int | float | Decimal, unit_us: int) -> int:
    """A number of a unit, rounded to µs. Raises RecordError where that lies beyond
    :data:`LIMIT_US`."""
    if isinstance(number, float):
        if number - number != 0:  # NaN and infinities
            raise RecordError(f"the timestamp {number!r} is not a time")
        number = Decimal(repr(number))  # its shortest digits, as they were written
    try:
        stamp = number * unit_us
        if -LIMIT_US < stamp < LIMIT_US:
            return round(stamp)
    except ArithmeticError:  # a Decimal that is not a number, or beyond all of them
        pass
    raise RecordError(
        f"the timestamp {str(number)[:_SHOWN]} is outside the supported range of times; check the"
        " unit"
    )


def digits_us(text: str, unit_us: int) -> int | None:
    """A text that is a number of a unit; None for any other text. Raises RecordError as
    :func:`number_us`."""
    digits = text.strip()
    return number_us(Decimal(digits), unit_us) if NUMBER.fullmatch(digits) else None


def scaled_us(number: int, times: int, by: int = 1) -> int:
    """A typed time of another system, of ``times`` µs or, if it is finer, of a µs divided ``by``
    that. It is rounded down. Raises RecordError where it does not fit into 64 bits."""
    micros = number * times // by
    if not -_INT64 <= micros < _INT64:
        raise RecordError(beyond(number, times))
    return micros


def beyond(number: int, times: int) -> str:
    """The sentence about such a time."""
    return f"the time {number} of {times} µs is outside the supported range of times"


def day_text(days: int) -> str:
    """The date so many days after 1970. Raises RecordError for one that has no text."""
    if not FIRST_DAY <= days <= LAST_DAY:
        raise RecordError(no_date(days))
    return date.fromordinal(days + EPOCH_DAY).isoformat()


def no_date(days: int) -> str:
    """The sentence about such a number of days."""
    return f"the date {days} days after 1970 is outside the years 1 to 9999"


def datetime_us(moment: datetime) -> int:
    """A datetime of Python; a naive one is UTC."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)) - _EPOCH) // _US


def date_us(day: date) -> int:
    """The beginning of a day, UTC."""
    return (day.toordinal() - EPOCH_DAY) * DAY_US


def object_us(value: object, unit_us: int) -> int | None:
    """The µs of a date, a datetime or a number of a unit; None for any other object. Raises
    RecordError as :func:`number_us`."""
    if isinstance(value, date):
        return datetime_us(value) if isinstance(value, datetime) else date_us(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return number_us(value, unit_us)


def may_lack_unit(lowest: int, highest: int) -> bool:
    """Whether some number between them may be one for which :func:`lacks_unit` gives a unit."""
    return any(lowest * us <= _TO_US and highest * us >= _FROM_US for us in _LIKELY.values())


def are_plain(lowest: int, highest: int, unit_us: int, states_unit: bool) -> bool:
    """Whether numbers of a unit, the lowest and the highest of them, are timestamps as they are;
    else each must be looked at."""
    inside = lowest * unit_us > -LIMIT_US and highest * unit_us < LIMIT_US
    return inside and (states_unit or not may_lack_unit(lowest, highest))


def lacks_unit(number: float | Decimal) -> str:
    """The unit in which a number, which is to be one of µs, lies between 1990 and 2100; "" for
    none. As µs these are the first hours and weeks of 1970."""
    return next((unit for unit, us in _LIKELY.items() if _FROM_US <= number * us <= _TO_US), "")


def without_unit(text: str, unit: str, field: str) -> str:
    """The sentence about such a number, or a text of digits."""
    name = f"field: {field}" if field else "field: FIELD"
    where = f"; as µs it lies in 1970, as {unit} it does not" if unit else ", a text of digits"
    return (
        f"{NO_UNIT}{text[:_SHOWN]}{where}: write timestamp: {{{name}, unit: {unit or 'ms'}}} (in"
        f" Python timestamp_unit={unit or 'ms'!r}), or unit: us if it is meant to be µs"
    )
