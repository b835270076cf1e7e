"""Checks the arguments that a test passes to a harness, and explains errors."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

import msgspec

from millwheel.core.instants.texts import iso_text
from millwheel.core.instants.time_forms import form_of
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.spec import StreamSpec
from millwheel.core.pipeline.tables import declared_name
from millwheel.core.windows.triggers import Trigger
from millwheel.core.windows.windows import (
    Count,
    Cumulative,
    Custom,
    Forever,
    Global,
    OfInput,
    Sessions,
    Sliding,
    Tumbling,
    WindowFunction,
)

E_ = TypeVar("E_", bound=Enum)
_WINDOWS = (Tumbling, Sliding, Sessions, Global, Count, Cumulative, OfInput, Custom, Forever)
_FAR = MAX_TIME // 2  # Fixed: later times are mistakes


def check_time(argument: Any, what: str, limit: int = _FAR) -> int:
    """Return ``argument``, a time in µs up to ``limit``. Raises TypeError or ValueError if it is
    anything else."""
    if isinstance(argument, bool) or not isinstance(argument, int):
        raise TypeError(
            f"{what} must be a whole number of µs since 1970 UTC, not {argument!r}"
            f" ({type(argument).__name__})"
        )
    if not -MAX_TIME - 1 <= argument <= limit:
        raise ValueError(
            f"{what} {argument} lies outside the times that can be counted; the end of input is"
            " finish()"
        )
    return argument


def chosen(kind: type[E_], argument: str, what: str) -> E_:
    """The member of ``kind`` with the value ``argument``. Raises ValueError, naming the members,
    for another value."""
    try:
        return kind(argument)
    except ValueError:
        raise ValueError(
            f"{what}={argument!r}: write one of {', '.join(member.value for member in kind)}"
        ) from None


def check_window(argument: Any) -> WindowFunction:
    """Return ``argument``, an instance of a window. Raises ValueError for a class or any other
    value."""
    if isinstance(argument, _WINDOWS):
        return argument
    raise ValueError(f"window={argument!r} is not a window; write for example Tumbling('10s')")


def check_trigger(argument: Any) -> Trigger:
    """Return ``argument``, an instance of a trigger. Raises ValueError for a class or any other
    value."""
    if isinstance(argument, Trigger):
        return argument
    raise ValueError(
        f"trigger={argument!r} is not a trigger; write for example"
        " AfterWatermark(early=AfterCount(2))"
    )


def check_partition(key: Any) -> str:
    """Return ``key``, the name of a partition that records come from."""
    if isinstance(key, str) and key:
        return key
    raise TypeError(
        f"key={key!r}: it names what the records come from, such as a file, and is text; the keys"
        " of consumers are taken from the records"
    )


def stamped(value: Any, stream: StreamSpec, timestamp: int) -> Any:
    """A copy of ``value`` with ``timestamp`` in its timestamp field, in the unit of the stream."""
    if stream.arrival:
        raise ValueError(
            f"the timestamp of a record of {stream.name} is the time at which it arrives; move the"
            " clock with advance_processing_time, and leave timestamp= out"
        )
    if stream.timeless:
        raise ValueError(
            f"{declared_name(stream.name)} is a table without times; leave timestamp= out"
        )
    if ":" in stream.timestamp:
        raise ValueError(
            f"{stream.name} reads timestamps with {stream.timestamp}; put into the record what that"
            " reads, and leave timestamp= out"
        )
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if not isinstance(value, dict):
        raise ValueError(
            f"timestamp= writes the field {stream.timestamp!r} of {stream.name}, and {value!r} has"
            " no fields; push a dict"
        )
    if value.get(stream.timestamp) is not None:
        raise ValueError(
            f"the record has its own time: {stream.timestamp}={value[stream.timestamp]!r};"
            " leave timestamp= out, or the field"
        )
    if stream.timestamp in stream.times:
        if form_of(stream.times[stream.timestamp]).format:
            raise ValueError(
                f"{stream.name} declares a format of {stream.timestamp!r}; put such a text into the"
                " record, and leave timestamp= out"
            )
        return {**value, stream.timestamp: iso_text(timestamp)}
    unit = stream.timestamp_unit_us
    if timestamp % unit:
        raise ValueError(
            f"{stream.name} counts {stream.timestamp!r} in units of {unit} µs, and {timestamp} is"
            " not a multiple of that"
        )
    return {**value, stream.timestamp: timestamp // unit}
