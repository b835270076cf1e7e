"""Local days of a time zone: 23, 24 or 25 hours from midnight to midnight."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millwheel.core.model.times import LAST_TIME, MAX_TIME
from millwheel.errors import RecordError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_US = timedelta(microseconds=1)
_DAY_US = 86_400_000_000  # Fixed: of a day of UTC
_REMEMBERED = 64  # days of a zone whose midnights are remembered


class Days:
    """Periods of ``count`` local days, beginning ``offset_us`` (by the local clock) after midnight.

    Periods of several days are counted from 1970-01-01. A midnight that the clock skips begins when
    the clock jumps; one that it shows twice begins at its first showing.
    """

    def __init__(self, time_zone: str, count: int, offset_us: int) -> None:
        try:
            self._zone = ZoneInfo(time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as ex:
            raise ValueError(
                f"unknown time zone {time_zone!r}; write an IANA name such as Europe/Paris or UTC"
            ) from ex
        self._count = count
        self._offset = timedelta(microseconds=offset_us)
        self._memo: dict[int, tuple[int, int]] = {}

    def bounds(self, timestamp: int) -> tuple[int, int]:
        """Start and end (µs) of the period that ``timestamp`` lies in. RecordError outside of years
        1 to 9999, but for the last instant, which the results of global windows have: its days are
        those of UTC."""
        if timestamp == LAST_TIME:
            start = timestamp - (timestamp - self._offset // _US) % (self._count * _DAY_US)
            return start, min(start + self._count * _DAY_US, MAX_TIME)
        hour = timestamp // 3_600_000_000
        cached = self._memo.get(hour)
        if cached is not None and cached[0] <= timestamp < cached[1]:
            return cached
        try:
            bounds = self._find(timestamp)
        except (OverflowError, ValueError) as ex:
            where = f"timestamp {timestamp} has no day in {self._zone.key}"
            raise RecordError(f"{where}: it lies outside of years 1 to 9999") from ex
        if len(self._memo) >= _REMEMBERED:
            self._memo.clear()
        self._memo[hour] = bounds
        return bounds

    def _find(self, timestamp: int) -> tuple[int, int]:
        local = (_EPOCH + timedelta(microseconds=timestamp)).astimezone(self._zone).replace(
            tzinfo=None
        ) - self._offset
        first = local.toordinal() - (local.toordinal() - _EPOCH_DAY) % self._count
        start, end = self._instant(first), self._instant(first + self._count)
        # Around a clock change the local date alone may name the neighbour: the instants decide.
        while timestamp < start:
            first, end = first - self._count, start
            start = self._instant(first)
        while timestamp >= end:
            first, start = first + self._count, end
            end = self._instant(first + self._count)
        return start, end

    def _instant(self, ordinal: int) -> int:
        wall = datetime.fromordinal(ordinal) + self._offset
        return (wall.replace(tzinfo=self._zone).astimezone(timezone.utc) - _EPOCH) // _US
