"""Whether values can be sent to other processes, and their sizes in bytes when they are sent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from msgspec import inspect

from millwheel.core.formats.codec import (
    MOST_NESTING,
    all_nest_little,
    encode_value,
    nests_too_deeply,
)
from millwheel.core.model.limits import over
from millwheel.core.model.records import Values
from millwheel.engine.workers.delivery.timestamps import numbers_column

_HEADS = 16  # Fixed: most bytes of a field besides its name and its text
_SAMPLE = 64
"""Records that are sampled to estimate the size of the others, where all can be sent."""
_PLAIN = (inspect.IntType, inspect.StrType, inspect.FloatType, inspect.BoolType)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a type whose values can all be sent, if the whole numbers in ``ints`` fit into
    64 bits. Encoded, a value takes at most ``room`` bytes more than the text that it was read
    from."""

    ints: tuple[str, ...]
    room: int


def carried(values: list[Any], most: int) -> tuple[int, dict[int, str]]:
    """The encoded sizes of the values in bytes, and {index: reason} of those that cannot be sent:
    mostly integers beyond 64 bits, and values larger than ``most`` bytes. Where all can be sent,
    their size is an estimate."""
    if isinstance(values, Values) and len(values) > _SAMPLE and _are_plain(values, most):
        some = values[:: len(values) // _SAMPLE]
        return len(encode_value(some)) * len(values) // len(some), {}
    size = 0
    try:
        size = len(encode_value(values))
        if size <= most and (size <= MOST_NESTING or all_nest_little(values)):
            return size, {}
    except (OverflowError, TypeError, ValueError, RecursionError):
        pass
    return size, {
        index: reason
        for index, value in enumerate(values)
        if (reason := _why_uncarriable(value, most))
    }


def _are_plain(values: Values, most: int) -> bool:
    """Whether all can be sent, by their type and their whole numbers: this takes a third of the
    time of encoding them."""
    plain = None if values.kind is None else _fields_of(values.kind)
    if plain is None or values.text_bytes + len(values) * plain.room > most:
        return False
    return all(numbers_column(values, name) is not None for name in plain.ints)


@lru_cache
def _fields_of(kind: type) -> _Fields | None:
    # it may put anything into a field
    if any("__post_init__" in vars(base) for base in kind.__mro__):
        return None
    try:
        struct = inspect.type_info(kind)
    except (TypeError, NameError):
        return None
    if not isinstance(struct, inspect.StructType):
        return None
    room = len(str(struct.tag)) + len(str(struct.tag_field)) + 2 * _HEADS
    ints = tuple(field.name for field in struct.fields if isinstance(field.type, inspect.IntType))
    for field in struct.fields:
        if not isinstance(field.type, _PLAIN) or not field.required:  # a default may be anything
            return None
        room += len(field.encode_name.encode()) + _HEADS
    return _Fields(ints, room)


def _why_uncarriable(value: Any, most: int) -> str:
    try:
        data = encode_value(value)
    except (OverflowError, TypeError, ValueError, RecursionError) as ex:
        return f"the record cannot be carried: {ex}"
    if len(data) > most:
        return over("record", "a record", len(data), most)
    return (
        f"the record nests more than {MOST_NESTING} levels deep" if nests_too_deeply(data) else ""
    )
