"""Times as text: the one module that reads a text as a time.

Nothing here depends on the time zone of the process, or on the version of Python. A text without an
offset is UTC.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

from millwheel.core.instants.formats import formatted
from millwheel.core.instants.numbers import DAY_US, EPOCH_DAY, NUMBER
from millwheel.core.model.times import SECOND
from millwheel.errors import RecordError

_SHOWN = 80  # characters of a text that are repeated
_DATE = r"([0-9]{4})(-?)([0-9]{2})\2([0-9]{2})"
_CLOCK = r"([0-9]{2})(?:(:?)([0-9]{2})(?:\6([0-9]{2})(?:[.,]([0-9]+))?)?)?"
_OFFSET = r" ?(?:[Zz]|([+-])([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?)"
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ISO = re.compile(rf"{_DATE}(?:[Tt ]{_CLOCK}(?:{_OFFSET})?)?")
_WEEK_OR_ORDINAL = re.compile(r"[0-9]{4}-?(?:[Ww][0-9]{2}(?:-?[0-9])?|[0-9]{3})(?:[Tt ].*)?")
_TAIL = re.compile(r"(?:\.([0-9]+))?(?:Z|([+-])([0-9]{2}):?([0-9]{2}))?")
_ENDS_WITH_OFFSET = re.compile(r".*[0-9][Tt ][0-9:.,]+ ?(?:[Zz]|[+-][0-9:]+)\s*", re.DOTALL)
_DASH, _HOUR, _SECOND_DIGITS = 4, 11, 19  # Fixed: of 2026-01-31T12:30:45
_FRACTION = 6  # digits of a fraction that are kept: µs


def text_us(text: str) -> int:
    """ISO 8601 and RFC 3339: ``2026-01-31``, ``2026-01-31T12:30:45.123456789+0100``,
    ``20260131T123045Z``.

    A blank may stand for the T, letters may be small, a comma for the point. An offset is ``Z``,
    ``+01:00``, ``+0100`` or ``+01``; without one it is UTC. Digits after the microsecond are cut
    off. A leap second, ``:60``, is the second after it, and ``24:00`` the beginning of the next
    day. Raises RecordError, with a sentence, for anything else, also for a text of digits alone,
    which may be a date or a number."""
    tail = _TAIL.fullmatch(text, _SECOND_DIGITS) if len(text) >= _SECOND_DIGITS else None
    if tail is None or text[_DASH] != "-" or text.startswith("24", _HOUR):
        return _parsed(text)
    # The form of most systems, where many records share a second.
    second, (fraction, *offset) = _of_second(text[:_SECOND_DIGITS]), tail.groups()
    if fraction is not None:
        second += int(fraction[:_FRACTION].ljust(_FRACTION, "0"))
    return (
        second
        if offset[0] is None
        else second - _offset(text, offset[0], offset[1], offset[2], None) * SECOND
    )


def iso_text(time_us: int, offset_us: int = 0) -> str:
    """A time as :func:`text_us` reads it, by clocks that are ``offset_us`` ahead of UTC: with six
    digits of a fraction, or none if it is zero."""
    wall = time_us + offset_us
    form = "%Y-%m-%dT%H:%M:%S.%f" if wall % SECOND else "%Y-%m-%dT%H:%M:%S"
    zone = formatted(wall, offset_us, "%z") if offset_us else "Z"
    return formatted(wall, offset_us, form) + (zone if zone == "Z" else f"{zone[:3]}:{zone[3:]}")


def has_offset(text: str) -> bool:
    """Whether a text that :func:`text_us` reads ends with an offset from UTC."""
    return _ENDS_WITH_OFFSET.fullmatch(text) is not None


def text_day(text: str) -> int:
    """The days since 1970 of ``2026-01-31``. Raises RecordError for anything else."""
    if not _DAY.fullmatch(text):
        raise RecordError(f"{text[:_SHOWN]!r} is not a date such as 2026-01-31")
    return text_us(text) // DAY_US


@lru_cache(maxsize=65_536)  # times that are remembered: logs have many records of a second
def _of_second(text: str) -> int:
    return _parsed(text)


def _parsed(text: str) -> int:
    match = _ISO.fullmatch(text.strip())
    if match is None or (not match[2] and match[5] is None):
        raise RecordError(_why_not(text))
    year, _, month, day, hour, _, minute, second, fraction = match.groups()[:9]
    try:
        ordinal = date(int(year), int(month), int(day)).toordinal()
    except ValueError:
        raise RecordError(
            f"the timestamp {text[:_SHOWN]!r} does not exist: there is no such day"
        ) from None
    seconds = _seconds(
        text, int(hour or 0), int(minute or 0), int(second or 0), (fraction or "").strip("0")
    )
    micros = int((fraction or "")[:_FRACTION].ljust(_FRACTION, "0"))
    return (
        (ordinal - EPOCH_DAY) * 86_400 + seconds - _offset(text, *match.groups()[9:])
    ) * SECOND + micros


def _seconds(text: str, hour: int, minute: int, second: int, rest: str) -> int:
    midnight = hour == 24 and not (minute or second or rest)
    if not (hour < 24 or midnight) or minute > 59 or second > 60:
        raise RecordError(
            f"the timestamp {text[:_SHOWN]!r} does not exist: there is no such time of a day"
        )
    return (hour * 60 + minute) * 60 + second


def _offset(
    text: str, sign: str | None, hours: str | None, minutes: str | None, seconds: str | None
) -> int:
    if sign is None:
        return 0
    if int(hours or 0) > 23 or int(minutes or 0) > 59 or int(seconds or 0) > 59:
        raise RecordError(
            f"the timestamp {text[:_SHOWN]!r} does not exist: there is no such offset"
        )
    offset = (int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    return -offset if sign == "-" else offset


def _why_not(text: str) -> str:
    plain, excerpt = text.strip(), text[:_SHOWN]
    if NUMBER.fullmatch(plain):
        return f"the timestamp {excerpt!r} is a text of digits; say in which unit"
    if _WEEK_OR_ORDINAL.fullmatch(plain):
        return (
            f"the timestamp {excerpt!r} is a week date or a day of a year, which are not read;"
            " write 2026-01-31"
        )
    if re.match(r"[+-]?[0-9]{5,}-|-[0-9]{4}-", plain):
        return (
            f"the timestamp {excerpt!r} is outside the years 1 to 9999 that text can express;"
            " write a number"
        )
    return f"the timestamp {excerpt!r} is neither a number nor ISO 8601 text"


def is_time_text(text: str) -> bool:
    """Whether :func:`text_us` reads it."""
    try:
        text_us(text)
    except (RecordError, ValueError):
        return False
    return True
