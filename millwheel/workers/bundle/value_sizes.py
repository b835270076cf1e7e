"""Whether values can be sent to other processes, and their sizes in bytes when they are sent."""

from __future__ import annotations

from typing import Any

from millwheel.core.formats.codec import encode_value
from millwheel.core.model.limits import over


def carried(values: list[Any], most: int) -> tuple[int, dict[int, str]]:
    """The encoded sizes of the values in bytes, and {index: reason} of those that cannot be sent: mostly integers
    beyond 64 bits, and values larger than ``most`` bytes."""
    size = 0
    try:
        size = len(encode_value(values))
        if size <= most:
            return size, {}
    except (OverflowError, TypeError, ValueError, RecursionError):
        pass
    return size, {index: reason for index, value in enumerate(values) if (reason := _why_uncarriable(value, most))}


def _why_uncarriable(value: Any, most: int) -> str:
    try:
        size = len(encode_value(value))
        return over("record", "a record", size, most) if size > most else ""
    except (OverflowError, TypeError, ValueError, RecursionError) as ex:
        return f"the record cannot be carried: {ex}"
