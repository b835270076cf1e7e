"""Times by the clocks of a time zone, for the years 1 to 9999."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millwheel.core.instants.calendar import civil, days_in, days_of
from millwheel.core.instants.numbers import DAY_US, datetime_us

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NAIVE_EPOCH = datetime(1970, 1, 1)
_US = timedelta(microseconds=1)
_BEYOND = "the time lies outside of the years 1 to 9999, for which zones are known"
_QUARTER_US = 900_000_000  # Fixed: of an hour
_LONGEST = 100  # characters of a name: no zone has more


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """The zone of an IANA name. Raises ValueError for an unknown one."""
    try:
        if len(name) > _LONGEST:
            raise ValueError
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"unknown time zone {name!r:.80}; write an IANA name such as Europe/Paris or UTC"
        ) from None


def offset_us(time_us: int, zone: tzinfo) -> int:
    """How far the clocks are ahead of UTC. Raises ValueError outside of the years 1 to 9999."""
    offset = _offset_in(time_us // _QUARTER_US, zone)
    return _offset_at(time_us, zone) if offset is None else offset


@lru_cache(maxsize=4_096)  # quarters of an hour that are remembered: six weeks of a zone
def _offset_in(quarter: int, zone: tzinfo) -> int | None:
    """The offset in a whole quarter of an hour; None where it changes in it. No zone changes
    twice within three days."""
    first = _offset_at(quarter * _QUARTER_US, zone)
    return first if first == _offset_at((quarter + 1) * _QUARTER_US - 1, zone) else None


def _offset_at(time_us: int, zone: tzinfo) -> int:
    try:
        offset = (_EPOCH + timedelta(microseconds=time_us)).astimezone(zone).utcoffset()
    except (OverflowError, ValueError):
        raise ValueError(_BEYOND) from None
    return (offset or timedelta()) // _US


def shown(wall_us: int, zone: tzinfo, second: bool = False) -> int:
    """The time at which clocks show ``wall_us``, µs since their 1970: the first, or the ``second``
    if they show it twice. A time that they skip is as far behind the jump as it would be without
    it."""
    try:
        wall = _NAIVE_EPOCH + timedelta(microseconds=wall_us)
        return datetime_us(wall.replace(tzinfo=zone, fold=int(second)).astimezone(timezone.utc))
    except (OverflowError, ValueError):
        raise ValueError(_BEYOND) from None


def begins(wall_us: int, zone: tzinfo, latest_us: int | None = None) -> int:
    """The time from which on clocks show ``wall_us``: the first, or the second if that is not after
    ``latest_us``. A time that they skip begins when they jump."""
    first, second = shown(wall_us, zone), shown(wall_us, zone, second=True)
    if second < first:
        return _jump(second, first, zone)
    return second if latest_us is not None and second <= latest_us else first


def wall_start(time_us: int, length_us: int, zone: tzinfo) -> int:
    """The latest time, not after this one, at which clocks showed a multiple of a length."""
    offset = offset_us(time_us, zone)
    wall = time_us + offset
    begin = time_us - wall % length_us
    if length_us <= DAY_US and offset_us(begin, zone) == offset:
        return begin
    return begins(wall - wall % length_us, zone, time_us)


def months_start(time_us: int, months: int, zone: tzinfo) -> int:
    """The beginning of the period of 1, 3 or 12 months that a time lies in. Around a change of
    clocks the date alone may name the neighbour: the instants decide."""

    year, month, _ = civil(days_in(time_us + offset_us(time_us, zone)))
    index = (year * 12 + month - 1) // months
    while time_us < _month_begins(index * months, zone):
        index -= 1
    while time_us >= _month_begins((index + 1) * months, zone):
        index += 1
    return _month_begins(index * months, zone)


@lru_cache(maxsize=1_024)
def _month_begins(month: int, zone: tzinfo) -> int:
    """The beginning of a month, counted from the year 0."""
    return begins(days_of(month // 12, month % 12 + 1, 1) * DAY_US, zone)


def _jump(before: int, after: int, zone: tzinfo) -> int:
    """When the clocks jump, between two times."""
    old = offset_us(before, zone)
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if offset_us(middle, zone) == old else (before, middle)
    return after
