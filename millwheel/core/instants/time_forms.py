"""Fields that are declared as ``timestamp``: how their values are written. Inside, each is a whole
number of µs since 1970 UTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.instants import formats
from millwheel.core.instants.local import shown, zone_of
from millwheel.core.instants.numbers import (
    are_plain,
    digits_us,
    lacks_unit,
    object_us,
)
from millwheel.core.instants.text_columns import texts_us
from millwheel.core.instants.texts import has_offset, text_us
from millwheel.core.model.times import SECOND
from millwheel.errors import RecordError

KIND = "timestamp"
UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000}  # Fixed: µs of a unit
INSIDE = "int"
"""The kind of such a field once it is read."""
_NONE = "-"
_SHOWN = 80  # characters of a value that are repeated


@dataclass(frozen=True)
class TimeForm:
    """How a field's times are written. ``unit``: that of numbers, "" if it is not declared; numbers
    that are hardly µs are refused then. ``zone``: that of the clocks which texts without an offset
    show, UTC if "". ``format``: that of the texts, ISO 8601 if ""; with one, numbers are
    refused."""

    unit: str = ""
    zone: str = ""
    format: str = ""

    @property
    def kind(self) -> str:
        """The form as one word or more: the type of a field, as sources get it."""
        parts = [self.unit or _NONE, self.zone or _NONE, self.format or _NONE]
        return " ".join([KIND, *parts]) if self != TimeForm() else KIND

    def check(self) -> None:
        """Raises ValueError for a zone or a format that cannot be read."""
        if self.zone:
            zone_of(self.zone)
        if self.format:
            formats.checked_to_parse(self.format)

    def inside(self, value: Any) -> int:
        """The µs of a value. Raises RecordError, with the cure, for a value that is not a time of
        this form."""
        if isinstance(value, str):
            return self._of_text(value)
        if self.format and not isinstance(value, date):
            raise RecordError(f"{_described(value)}, and not a text as {self.format!r} says")
        stamp = object_us(value, self._unit_us)
        if stamp is None:
            raise RecordError(f"{_described(value)}, and a timestamp is a number or a text")
        number = not isinstance(value, date)
        if number and not self.unit and (unit := lacks_unit(value)):
            raise RecordError(
                f"{_described(value)}; as µs it lies in 1970, as {unit} it does not: declare it as"
                f" {{type: timestamp, unit: {unit}}}, or unit: us if it is meant to be µs"
            )
        return stamp

    def inside_of_text(self, text: str) -> int:
        """:meth:`inside` of a text in a file without types, in which a number is digits."""
        digits = not self.format and text.strip().lstrip("+-").isdigit()
        return self.inside(int(text)) if digits and text.isascii() else self._of_text(text)

    def column(self, values: Sequence[Any]) -> npt.NDArray[np.int64] | None:
        """:meth:`inside` of many values, of which none is null; None where each must be looked
        at."""
        kinds = set(map(type, values))
        try:
            if kinds == {int}:
                return self.numbers(np.array(values, np.int64))
            return self._texts(values) if kinds == {str} else None
        except (OverflowError, RecordError, ValueError):
            return None

    def numbers(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """The same of whole numbers."""
        if self.format:
            return None
        if len(numbers):
            extent = int(numbers.min()), int(numbers.max())
            if not are_plain(*extent, self._unit_us, bool(self.unit)):
                return None
        return numbers if self._unit_us == 1 else numbers * self._unit_us

    def _texts(self, texts: Sequence[str]) -> npt.NDArray[np.int64] | None:
        if self.format:
            times = [_by_format(text, self.format, self.zone) for text in texts]
            return np.array(times, np.int64)
        if not self.zone:
            return texts_us(texts)
        # where clocks go wrong, they do so at whole seconds
        walls = None if any(map(has_offset, texts)) else texts_us(texts)
        if walls is None:
            return None
        seconds, indexes = np.unique(walls // SECOND, return_inverse=True)
        zone = zone_of(self.zone)
        times = [shown(each * SECOND, zone) for each in seconds.tolist()]
        return np.array(times, np.int64)[indexes] + walls % SECOND

    @cached_property
    def _unit_us(self) -> int:
        return UNITS.get(self.unit, 1)

    def _of_text(self, text: str) -> int:
        try:
            if self.format:
                return _by_format(text, self.format, self.zone)
            if self.unit and (stamp := digits_us(text, self._unit_us)) is not None:
                return stamp
            stamp = text_us(text)
            naive = self.zone and not has_offset(text)
            return shown(stamp, zone_of(self.zone)) if naive else stamp
        except (RecordError, ValueError) as ex:
            raise RecordError(f"{ex!s}{self._cure(text)}") from None

    def _cure(self, text: str) -> str:
        if self.format:
            return f"; it is declared with the format {self.format!r}"
        if not self.unit and text.strip().isdigit():
            return ": declare it as {type: timestamp, unit: ms}"
        return "; other texts need a format: {type: timestamp, format: '%d.%m.%Y %H:%M'}"


@lru_cache(maxsize=65_536)  # texts that are remembered: logs have many records of a second
def _by_format(text: str, form: str, zone: str) -> int:
    wall, offset = formats.parsed(text, form)
    if offset is not None:
        return wall - offset
    return shown(wall, zone_of(zone)) if zone else wall


def _described(value: Any) -> str:
    return f"it is {type(value).__name__} {value!r}"[:_SHOWN]


def is_time(kind: str) -> bool:
    """Whether a kind of a declared field is that of times."""
    return kind == KIND or kind.startswith(f"{KIND} ")


@lru_cache(maxsize=1_000)  # forms of fields: a pipeline has a few
def form_of(kind: str) -> TimeForm:
    """The inverse of :attr:`TimeForm.kind`."""
    if kind == KIND:
        return TimeForm()
    unit, zone, form = ("" if each == _NONE else each for each in kind.split(" ", 3)[1:])
    return TimeForm(unit, zone, form)
