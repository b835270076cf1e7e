"""The calendar as arithmetic over whole numbers, for all years; days count from 1970-01-01. Every
function takes numbers, or arrays of int64 alike, so that rows and columns give the same results."""

from __future__ import annotations

from typing import Any

from millwheel.core.instants.numbers import DAY_US

_EPOCH = 719_468  # Fixed: days from 0000-03-01 to 1970-01-01
_ERA = 146_097  # Fixed: days of 400 years


def civil(days: Any) -> tuple[Any, Any, Any]:
    """Year, month and day. Years begin in March, so that a leap day is the last: see H. Hinnant,
    chrono-Compatible Low-Level Date Algorithms."""
    era = (days + _EPOCH) // _ERA
    of_era = days + _EPOCH - era * _ERA
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    return year + era * 400 + month // 10, month + 3 - 12 * (month // 10), day


def days_of(year: Any, month: Any, day: Any) -> Any:
    """The inverse of :func:`civil`."""
    year = year - (14 - month) // 12
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * _ERA + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH


def day_of_week(days: Any) -> Any:
    """1 for Monday to 7 for Sunday."""
    return (days + 3) % 7 + 1


def day_of_year(days: Any) -> Any:
    """From 1 on."""
    return days - days_of(civil(days)[0], 1, 1) + 1


def iso_week(days: Any) -> tuple[Any, Any]:
    """The year and the number of the week by ISO 8601: those of its Thursday."""
    thursday = days - day_of_week(days) + 4
    return civil(thursday)[0], (day_of_year(thursday) - 1) // 7 + 1


def month_start(days: Any, months: int) -> Any:
    """The first day of the period of 1, 3 or 12 months that a day lies in."""
    year, month, _ = civil(days)
    return days_of(year, (month - 1) // months * months + 1, 1)


def days_in(time_us: Any) -> Any:
    """The day of a time."""
    return time_us // DAY_US
