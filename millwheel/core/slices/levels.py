"""Levels of slices: time cut into stretches of one length, which is a multiple of the length of the
level below.

Without a time zone, slices are counted from 1970-01-01 UTC. With one, those of whole days begin at
local midnight, and shorter ones are counted from the midnight before them; the last one of a day of
23 or 25 hours may be shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from millwheel.core.model.times import MAX_TIME, MIN_TIME, duration_text
from millwheel.core.windows.windows import DAY
from millwheel.core.windows.zones import Days

MOST_SLICES = 1_000_000
"""The most slices of the finest level that are kept for a key."""
_MOST_LEVELS = 8
"""The most levels. Each record changes one slice of every level: more cost more than they save."""


@dataclass(frozen=True, slots=True)
class SliceLevel:
    """One level: slices of ``size_us``. ``number`` 0 is the finest."""

    number: int
    size_us: int
    _days: Days | None = field(default=None, repr=False, compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether slices are counted from 1970-01-01 UTC, so that all have one length."""
        return self._days is None

    def bounds(self, at_us: int) -> tuple[int, int]:
        """Start and end (exclusive) of the slice that an instant lies in, within the supported
        times. Raises RecordError for years outside the range of time zones."""
        if self._days is None:
            start = at_us - at_us % self.size_us
            end = start + self.size_us
        elif self.size_us >= DAY:
            return self._days.bounds(at_us)
        else:
            midnight, next_midnight = self._days.bounds(at_us)
            start = at_us - (at_us - midnight) % self.size_us
            end = min(start + self.size_us, next_midnight)
        return max(start, MIN_TIME), min(end, MAX_TIME)


def slice_levels(sizes_us: Sequence[int], time_zone: str = "") -> tuple[SliceLevel, ...]:
    """The levels of these sizes, finest first. ValueError, with the fix, for sizes that do not fit
    into each other."""
    if len(sizes_us) > _MOST_LEVELS:
        raise ValueError(f"there are {len(sizes_us)} levels, more than {_MOST_LEVELS}")
    for finer, coarser in pairwise(sizes_us):
        if coarser <= finer or coarser % finer:
            raise ValueError(
                f"the level {duration_text(coarser)} is not a multiple of the level"
                f" {duration_text(finer)} before it; write levels from short to long, such as [5m,"
                " 1h, 1d]"
            )
    return tuple(
        SliceLevel(number, size, _days(size, time_zone)) for number, size in enumerate(sizes_us)
    )


def _days(size_us: int, time_zone: str) -> Days | None:
    if not time_zone:
        return None
    if size_us >= DAY and size_us % DAY == 0:
        return Days(time_zone, size_us // DAY, 0)
    if size_us > DAY or DAY % size_us:
        raise ValueError(
            f"a level of {duration_text(size_us)} does not fit into local days; with a time_zone,"
            " each level divides a day, or is a whole number of days"
        )
    return Days(time_zone, 1, 0)


def default_levels(every_us: int, keep_us: int) -> tuple[int, ...]:
    """Sizes that keep answers short: an hour and a day above ``every_us``, if they fit and do not
    exceed ``keep_us``."""
    sizes = [every_us]
    for size in (DAY // 24, DAY):
        if size > sizes[-1] and size % sizes[-1] == 0 and size <= keep_us:
            sizes.append(size)
    return tuple(sizes)
