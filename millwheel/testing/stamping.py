"""The times that a test gives: checked, and written into records where a stream looks for them."""

from __future__ import annotations

from typing import Any

import msgspec

from millwheel.core.spec import StreamSpec
from millwheel.core.times import MAX_TIME


def check_time(given: Any, what: str) -> int:
    """``given`` if it is a time in µs. Raises TypeError or ValueError with a sentence."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{what} must be a whole number of µs since 1970 UTC, not {given!r} ({type(given).__name__})")
    if not -MAX_TIME <= given <= MAX_TIME // 2:
        raise ValueError(f"{what} {given} lies outside the times that can be counted; the end of input is finish()")
    return given


def stamped(value: Any, stream: StreamSpec, timestamp: int) -> Any:
    """A copy of ``value`` whose timestamp field says ``timestamp``, in the unit of the stream."""
    if ":" in stream.timestamp:
        raise ValueError(
            f"{stream.name} reads timestamps with {stream.timestamp}; put into the record what that reads, and leave "
            "timestamp= out"
        )
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if not isinstance(value, dict):
        raise ValueError(
            f"timestamp= writes the field {stream.timestamp!r} of {stream.name}, and {value!r} has no fields; "
            "push a dict"
        )
    if value.get(stream.timestamp) is not None:
        raise ValueError(
            f"the record says its time itself: {stream.timestamp}={value[stream.timestamp]!r}; leave timestamp= "
            "out, or the field"
        )
    unit = stream.timestamp_unit_us
    if timestamp % unit:
        raise ValueError(
            f"{stream.name} counts {stream.timestamp!r} in units of {unit} µs, and {timestamp} is no multiple of that"
        )
    return {**value, stream.timestamp: timestamp // unit}
