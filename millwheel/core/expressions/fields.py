"""Reading a field of a record's value: a key of a dict, or an attribute of an object (a msgspec
Struct). A name that begins with an underscore is not a field of an object, but part of its
class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from millwheel.errors import RecordError

Read = Callable[[Any], Any]


def field_reader(name: str) -> Read:
    """A function from a value to its field ``name``. If the field is missing, the function raises
    RecordError, which names it."""

    def read(value: Any) -> Any:
        if type(value) is dict:
            try:
                return value[name]
            except KeyError:
                raise missing_field(name, value) from None
        return _slow(name, value)

    return read


def field_or_none(name: str, value: Any) -> Any:
    """The field, or None when there is none."""
    if isinstance(value, dict):
        return value.get(name)
    return None if name.startswith("_") else getattr(value, name, None)


def missing_field(name: str, value: Any, what: str = "") -> RecordError:
    """The error of a record without a field; ``what`` is the purpose of the field ("key")."""
    if value is None and not what:
        # such as the side that has no partner behind an outer join
        return _error(
            name,
            f"null has no field {name!r}; where it may be null, write `x.{name} if x is not null"
            " else …`, or nulls: sql beside streams",
        )
    if isinstance(value, dict):
        there = ", ".join(
            name if name.isprintable() else repr(name) for name in sorted(map(str, value))[:30]
        )
        there = there or "no fields"
    else:
        there = (
            ", ".join(value.__struct_fields__ if isinstance(value, msgspec.Struct) else ())
            or f"no fields, being {type(value).__name__}"
        )
    lead = f"missing {what}: " if what else ""
    return _error(name, f"{lead}the record has no field {name!r}; it has {there}")


def _error(name: str, words: str) -> RecordError:
    error = RecordError(words)
    error.about = f"field {name!r}"
    return error


def _slow(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        if name in value:
            return value[name]
    else:
        attribute = _ABSENT if name.startswith("_") else getattr(value, name, _ABSENT)
        if attribute is not _ABSENT:
            return attribute
    raise missing_field(name, value)


_ABSENT: Any = object()
