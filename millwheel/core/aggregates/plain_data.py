"""Plain data: numbers, text, bytes, None, lists and dicts, which keep their types when they are
encoded and decoded."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

PLAIN: frozenset[type] = frozenset((int, float, str, bytes, bool, type(None)))
"""Types of values that cannot be changed in place, and come back as they are."""


def is_plain(value: Any) -> bool:
    """Whether a value consists of plain data alone."""
    kind = type(value)
    if kind in PLAIN:
        return True
    if kind is list:
        return PLAIN.issuperset(map(type, value)) or all(map(is_plain, value))
    if kind is not dict or not PLAIN.issuperset(map(type, value)):
        return False
    return PLAIN.issuperset(map(type, value.values())) or all(map(is_plain, value.values()))


def copied(value: Any) -> Any:
    """A value that shares nothing with this one that could be changed in place."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict:
        return {name: each if type(each) in PLAIN else copied(each) for name, each in value.items()}
    if kind is list:
        return [each if type(each) in PLAIN else copied(each) for each in value]
    return deepcopy(value)
