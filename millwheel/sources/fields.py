"""Declared field types: what a record must look like when its stream has ``fields:``."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from millwheel.errors import RecordError

_ALLOWED: dict[str, set[type]] = {
    "int": {int, type(None)},
    "float": {float, int, type(None)},
    "str": {str, type(None)},
    "bool": {bool, type(None)},
}
_INT64 = 2**63
_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no"}


class FieldTypes:
    """Checks dict values against declared types. A field that is missing or None fits every type."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        for name, kind in fields.items():
            if kind not in _ALLOWED:
                raise ValueError(f"field {name!r} is declared as {kind!r}; write one of {', '.join(_ALLOWED)}")
        self._fields = dict(fields)

    def check(self, values: list[dict[str, Any]]) -> dict[int, str]:
        """{place: what is wrong}. Whole numbers in a float field become floats, in place."""
        problems: dict[int, str] = {}
        for name, kind in self._fields.items():
            column = _column(name, values)
            kinds = set(map(type, column))
            if not kinds <= _ALLOWED[kind] or (int in kinds and _beyond(column, kinds)):
                self._find(name, kind, column, problems)
            if kind == "float" and int in kinds:
                self._to_floats(name, column, values)
        return problems

    @staticmethod
    def _find(name: str, kind: str, column: list[Any], problems: dict[int, str]) -> None:
        for place, found in enumerate(column):
            if type(found) not in _ALLOWED[kind]:
                shown = repr(found)[:80]
                problems.setdefault(place, f"field {name!r} is {type(found).__name__} {shown}, but is declared as {kind}")
            elif type(found) is int and not -_INT64 <= found < _INT64:
                problems.setdefault(place, f"field {name!r} is {str(found)[:80]}, which does not fit into 64 bits")

    @staticmethod
    def _to_floats(name: str, column: list[Any], values: list[dict[str, Any]]) -> None:
        for found, value in zip(column, values, strict=True):
            if type(found) is int and -_INT64 <= found < _INT64:
                value[name] = float(found)


def _column(name: str, values: list[dict[str, Any]]) -> list[Any]:
    """One field of all values; None where it is missing."""
    try:
        return list(map(itemgetter(name), values))
    except KeyError:
        return [value.get(name) for value in values]


def _beyond(column: list[Any], kinds: set[type]) -> bool:
    """True when a whole number does not fit into 64 bits."""
    numbers = column if kinds == {int} else [number for number in column if type(number) is int]
    try:
        array("q", numbers)
    except OverflowError:
        return True
    return False


def from_text(name: str, kind: str, text: str) -> Any:
    """The text of a field as its declared type; empty text is None unless text is what was declared.

    Raises RecordError, with a sentence.
    """
    if kind == "str":
        return text
    if not text:
        return None
    try:
        if kind == "int":
            number = int(text)
            if not -_INT64 <= number < _INT64:
                raise RecordError(f"field {name!r} is {text[:80]}, which does not fit into 64 bits")
            return number
        return float(text) if kind == "float" else _boolean(text)
    except ValueError:
        raise RecordError(f"field {name!r} is {text[:80]!r}, but is declared as {kind}") from None


def _boolean(text: str) -> bool:
    lower = text.lower()
    if lower not in _TRUE and lower not in _FALSE:
        raise ValueError(text)
    return lower in _TRUE
