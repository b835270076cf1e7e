"""Time as this project counts it: int64 microseconds since 1970 UTC, and durations in words."""

from __future__ import annotations

import re
from operator import index

MIN_TIME = -(2**63)
"""Before every record: the watermark of a source that has reported none yet."""
MAX_TIME = 2**63 - 1
"""After every record: the watermark of a bounded source that has ended."""
LAST_TIME = MAX_TIME - 1
"""The last possible instant of a record, a timer, or the end of a window."""
BEGINNING = -62_135_596_800_000_000
"""The time of rows that have always been there: 0001-01-01, the first day that has a date."""
IDLE_TIME = MAX_TIME - 1
"""Reported by a source shard without live input: it does not hold the watermark now, but may again
later. No other shard reports it."""

SECOND = 1_000_000  # Fixed: µs
_IDLE_STEP_US, _LONG_SILENCE_US, _LONG_IDLE_STEP_US = 250_000, 20 * SECOND, SECOND
"""The steps in which the watermark of an idle source follows the wall clock: each makes every node
downstream report."""
_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
    "d": 86400 * SECOND,
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")


def duration_us(text: str | int) -> int:
    """Microseconds of a duration such as ``"500ms"``, ``"2m"`` or ``"1h30m"``; an int is µs
    already.

    Raises ValueError, with the accepted forms, for any other text.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    compact = str(text).replace(" ", "")
    parts = _DURATION.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(
            f"{text!r} is not a duration; write a number and a unit, such as 500ms, 10s, 2m, 1h30m"
            " or 7d"
        )
    return round(sum(float(number) * _UNITS_US[unit] for number, unit in parts))


def duration_text(us: int) -> str:
    """The shortest words for a duration: ``90_000_000`` is ``1m30s``."""
    if us <= 0:
        return f"{us}us" if us else "0s"
    words = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, us = divmod(us, _UNITS_US[unit])
        if count:
            words.append(f"{count}{unit}")
    return "".join(words)


def instant(at: int) -> int:
    """A time within the supported range: a time after the last instant becomes that instant.
    TypeError for values that are not whole numbers."""
    return min(max(index(at), MIN_TIME), LAST_TIME)


def held_at(at_us: int) -> int:
    """The time at which work at ``at_us`` holds the watermark. Work at the last instant is reported
    to hold before it: a report of that instant would mean that nothing is held, and consumers would
    take the end of time as reached."""
    return at_us - 1 if at_us == IDLE_TIME else at_us


def clock_step_us(silent_us: int) -> int:
    """The steps in which the watermark of a silent source follows the wall clock."""
    return _IDLE_STEP_US if silent_us < _LONG_SILENCE_US else _LONG_IDLE_STEP_US


def idle_progress(silent_us: int) -> int:
    """How far the silence of a source has moved its watermark: in steps, longer ones when it has
    lasted."""
    return silent_us - silent_us % clock_step_us(silent_us)
