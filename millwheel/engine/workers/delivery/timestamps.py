"""The timestamp of a record from outside, in µs, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.plain_data import copied
from millwheel.core.instants.numbers import (
    are_plain,
    digits_us,
    lacks_unit,
    object_us,
    without_unit,
)
from millwheel.core.instants.texts import text_us
from millwheel.core.model.failures import encodable, in_words
from millwheel.core.model.records import Values, ints_of, numbers_in, taken
from millwheel.core.model.times import BEGINNING
from millwheel.core.pipeline.spec import StreamSpec
from millwheel.engine.workers.boundaries import passes
from millwheel.errors import RecordError

_FEW = 64
"""Numbers up to which a list is quicker than an array."""


Stamps = npt.NDArray[np.int64]
TimesOf = Callable[[Sequence[int] | Stamps], Stamps | list[int]]
"""Positions of a partition, which rise -> when those records arrived."""


def field_of(value: Any, name: str) -> Any:
    """A field of a dict or an attribute of an object; None when there is none."""
    if type(value) is dict:
        return value.get(name)
    return getattr(value, name, None)


def column_of(values: list[Any], name: str) -> list[Any]:
    """One field of many records; None where it is missing."""
    column = plain_column(values, name)
    return [field_of(value, name) for value in values] if column is None else column


def plain_column(values: Sequence[Any], name: str) -> list[Any] | None:
    """One field of many records of one kind, all of which have it; None when they do not. Not to be
    changed."""
    return values.column(name) if type(values) is Values else taken(values, name)


def numbers_column(values: Sequence[Any], name: str) -> Stamps | None:
    """One field of many records as an array; None when one of them has another value than a whole
    number of up to 64 bits."""
    return (
        values.numbers(name)
        if isinstance(values, Values)
        else numbers_in(plain_column(values, name))
    )


def extent(numbers: Stamps | list[int]) -> tuple[int, int]:
    """The lowest and the highest of some numbers, of which there must be one."""
    if isinstance(numbers, list):
        return min(numbers), max(numbers)
    return int(numbers.min()), int(numbers.max())


class Timestamps:
    """The reader of the timestamps of a stream's records; BEGINNING where the stream has none.
    ``function`` is the loaded ``module:function``, if that is how the stream is declared. Unless it
    ``states_unit``, numbers that are hardly µs are refused."""

    def __init__(
        self, spec: StreamSpec, function: Callable[[Any], Any] | None, states_unit: bool = True
    ) -> None:
        self._field = spec.timestamp
        self._unit = spec.timestamp_unit_us
        self._states_unit = states_unit
        self._function = function

    def of(self, values: list[Any]) -> tuple[list[int], dict[int, str]]:
        """(timestamps, {index: problem}); a record with a problem has timestamp 0."""
        stamps, problems = self.stamps(values)
        return stamps if isinstance(stamps, list) else stamps.tolist(), problems

    def stamps(self, values: list[Any]) -> tuple[Stamps | list[int], dict[int, str]]:
        """:meth:`of`, with an array for many."""
        if not self._field:
            return np.full(len(values), BEGINNING), {}
        if self._function is not None:
            return self._by_function(values)
        if len(values) > _FEW:
            numbers = numbers_column(values, self._field)
            if numbers is not None and are_plain(*extent(numbers), self._unit, self._states_unit):
                return numbers * self._unit, {}
            return self._one_by_one(column_of(values, self._field))
        raw = column_of(values, self._field)
        ints = ints_of(raw)
        if ints is not None and (
            not ints or are_plain(*extent(ints), self._unit, self._states_unit)
        ):
            return [number * self._unit for number in ints], {}
        return self._one_by_one(raw)

    def _by_function(self, values: list[Any]) -> tuple[list[int], dict[int, str]]:
        assert self._function is not None
        stamps: list[int] = []
        problems: dict[int, str] = {}
        for index, value in enumerate(values):
            try:
                stamps.append(self._convert(self._function(copied(value))))
            except RecordError as ex:
                problems[index] = encodable(str(ex))
                stamps.append(0)
            # an error of the user's function or of its result concerns this record
            except BaseException as ex:
                if passes(ex):
                    raise
                problems[index] = f"the timestamp function failed: {in_words(ex)}"
                stamps.append(0)
        return stamps, problems

    def _one_by_one(self, raw: list[Any]) -> tuple[list[int], dict[int, str]]:
        stamps: list[int] = []
        problems: dict[int, str] = {}
        for index, value in enumerate(raw):
            try:
                stamps.append(self._convert(value))
            except RecordError as ex:
                problems[index] = str(ex)
                stamps.append(0)
        return stamps, problems

    def _convert(self, value: Any) -> int:
        if value is None:
            raise RecordError(f"missing timestamp: the record has no field {self._field!r}")
        if isinstance(value, str):
            return self._from_text(value)
        stamp = object_us(value, self._unit)
        if stamp is None:
            raise RecordError(f"the timestamp {value!r} is neither a number nor ISO 8601 text")
        number = not isinstance(value, date)
        if number and not self._states_unit and (unit := lacks_unit(value)):
            raise RecordError(without_unit(str(value), unit, self._name()))
        return stamp

    def _from_text(self, text: str) -> int:
        """Digits are a number where a unit is stated, and never a date."""
        if (stamp := digits_us(text, self._unit)) is None:
            return text_us(text)
        if not self._states_unit:
            raise RecordError(without_unit(repr(text), "", self._name()))
        return stamp

    def _name(self) -> str:
        return self._field if self._function is None else f'"{self._field}"'
