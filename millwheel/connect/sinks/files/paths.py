"""Partitioned paths: the folder of a record, from expressions over its value
(``day=2026-01-31/country=DE``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import numpy as np

from millwheel.connect.own_functions import expression_of
from millwheel.connect.sinks.base import SinkRecord
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.lazy_polars import pl
from millwheel.errors import RecordError

_TIMES = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
_CALL = re.compile(rf"({'|'.join(_TIMES)})\((.+)\)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NONE = "__HIVE_DEFAULT_PARTITION__"
"""The folder of records without a value, by the convention of Hive."""
_HOUR_US = 3_600_000_000  # Fixed: the shortest of the times above
_ROW = "row"
_MOST_LETTERS = 200  # in a folder's name: file systems take 255 bytes
_EXAMPLE = "partition_by: [day(window_start), country]"


@dataclass(frozen=True, slots=True)
class _Level:
    """``field``: the field it is made of, "" for any other expression; ``is_time``: it is a time of
    the calendar, made of that field."""

    name: str
    value_of: Callable[[Any], Any]
    field: str
    is_time: bool

    def fits(self, column: pl.Series) -> bool:
        """Whether :meth:`key` has its values."""
        return column.dtype == pl.Int64 or (
            not self.is_time and column.dtype in (pl.String, pl.Boolean)
        )

    def key(self, column: pl.Series) -> pl.Series:
        """The value that decides the folder: one for many records."""
        return column // _HOUR_US if self.is_time else column

    def text(self, key: Any) -> str:
        """The folder of the records with a key. Raises RecordError."""
        value = key * _HOUR_US if self.is_time and key is not None else key
        return f"{self.name}={_text(self.name, self.value_of({self.field: value}))}"


class Partitioning:
    """``parts`` are fields, ``day(TIME)`` and its like (``year``, ``month``, ``hour``; TIME in µs
    since 1970, UTC), or ``{name: expression}``. Raises ValueError, with a sentence, for anything
    else."""

    def __init__(self, parts: Sequence[str | dict[str, str]]) -> None:
        self._levels = [_level(part) for part in parts]
        names = [level.name for level in self._levels]
        if len(set(names)) < len(names):
            twice = max(names, key=names.count)
            raise ValueError(f"option 'partition_by' names {twice!r} twice; give each its own name")

    @property
    def by_columns(self) -> bool:
        """Whether :meth:`divided` can divide records in columns."""
        return all(level.field for level in self._levels)

    def divided(self, batch: ColumnBatch) -> list[tuple[str, ColumnBatch]] | None:
        """The records by folder, as :meth:`folder` has them; None if each must be looked at."""
        frame, levels = batch.frame, self._levels
        if not all(each.field in frame.columns and each.fits(frame[each.field]) for each in levels):
            return None
        names = [str(number) for number in range(len(levels))]
        keys = [
            level.key(frame[level.field]).alias(name)
            for level, name in zip(levels, names, strict=True)
        ]
        groups = (
            pl.DataFrame(keys).with_row_index(_ROW).group_by(names, maintain_order=True).agg(_ROW)
        )
        try:
            folders = [
                "/".join(level.text(key) for level, key in zip(levels, row, strict=True))
                for row in groups.select(names).rows()
            ]
        except RecordError:
            return None
        numbers = np.empty(len(batch), np.int32)
        for number, rows in enumerate(groups[_ROW]):
            numbers[rows.to_numpy()] = number
        return [(folders[number], part) for number, part in batch.split(numbers)]

    def folder(self, record: SinkRecord) -> str:
        """The folder of a record, "" if there are no parts. Raises RecordError when an expression
        cannot be computed."""
        return "/".join(
            f"{level.name}={_text(level.name, level.value_of(record.value))}"
            for level in self._levels
        )


def _level(part: str | dict[str, str]) -> _Level:
    if isinstance(part, dict):
        if len(part) != 1:
            raise ValueError(
                f"option 'partition_by' has a map of {len(part)} entries; write {{name:"
                " expression}"
            )
        [(name, text)] = part.items()
    else:
        name, text = "", part
    call = _CALL.fullmatch(text.strip())
    inner = text if call is None else call.group(2)
    try:
        expression = expression_of(inner)
    except ValueError as ex:
        raise ValueError(f"option 'partition_by': {text}: {ex}") from None
    if not name and call is None and not expression.is_field:
        raise ValueError(f"option 'partition_by': {text} needs a name; write {{name: {text!r}}}")
    name = name or (text.strip() if call is None else call.group(1))
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"option 'partition_by': {name!r} is not a name of letters, digits and _; {_EXAMPLE}"
        )
    return _Level(
        name,
        expression.evaluate if call is None else _time(call.group(1), expression.evaluate),
        inner.strip() if expression.is_field else "",
        call is not None,
    )


def _time(unit: str, value_of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def text(value: Any) -> str | None:
        moment = value_of(value)
        if moment is None:
            return None
        if type(moment) is not int:
            raise RecordError(
                f"{unit}() of `partition_by` needs a time in µs, but has {str(moment)[:80]!r}"
            )
        try:
            return (_EPOCH + timedelta(microseconds=moment)).strftime(_TIMES[unit])
        except OverflowError:
            raise RecordError(
                f"{unit}() of `partition_by` has {moment} µs, which is not a time of a calendar"
            ) from None

    return text


def _text(name: str, value: Any) -> str:
    if value is None or value == "":
        return NONE
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float, Decimal)):
        raise RecordError(
            f"`partition_by` gave {name} = {str(value)[:80]!r}, which is not a text, number or"
            " boolean"
        )
    text = quote(str(value), safe=" .-_:+@,()")
    if len(text) > _MOST_LETTERS or text.strip(". ") == "":
        raise RecordError(
            f"`partition_by` gave {name} = {text[:80]!r}, which is not a name of a folder"
        )
    return text
