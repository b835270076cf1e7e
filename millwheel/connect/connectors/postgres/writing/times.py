"""Times in text for columns without a zone: the server would drop an offset, so they are converted
to UTC first."""

from __future__ import annotations

import datetime as dt
import re

ZONELESS = frozenset({"timestamp", "date", "time"})
"""Types whose text form may have an offset that the server ignores."""
_ZONED = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[Tt"
    r" ](?P<hour>\d\d):?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?P<fraction>[.,]\d+)?)?"
    r"\s?(?P<zone>[Zz]|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)"
)
_ODD = re.compile(r"\d:\d\d.*?(?P<zone>[+-]\d[\d:]*|[A-Za-z][\w/]*)\s*$", re.DOTALL)
_NO_ZONE = frozenset({"am", "pm", "bc", "ad", "z", "utc", "gmt"})


def without_zone(text: str, base: str) -> str:
    """The same time in UTC without its offset. A text without an offset stays as it is: it is UTC.
    Raises ValueError for an offset in a form of which the server would drop it, OverflowError for
    years that Python does not have."""
    match = _ZONED.fullmatch(text.strip())
    if match is None:
        odd = _ODD.search(text)
        if odd is not None and odd["zone"].lower() not in _NO_ZONE:
            raise ValueError(
                f"its offset {odd['zone']!r} would be lost; write for example"
                " 2026-01-01T00:00:00+02:00"
            )
        return text
    at = dt.datetime.fromisoformat(match["day"]) + dt.timedelta(
        hours=int(match["hour"]), minutes=int(match["minute"]), seconds=int(match["second"] or 0)
    )
    utc = at - _offset(match["zone"])
    return utc.isoformat() + (match["fraction"] or "").replace(",", ".")


def _offset(zone: str) -> dt.timedelta:
    if zone in "Zz":
        return dt.timedelta(0)
    digits = zone[1:].replace(":", "").ljust(6, "0")
    offset = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:4]), seconds=int(digits[4:]))
    return -offset if zone[0] == "-" else offset
