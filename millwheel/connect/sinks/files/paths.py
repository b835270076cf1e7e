"""Partitioned paths: the folder of a record, from expressions over its value
(``day=2026-01-31/country=DE``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

from millwheel.connect.sinks.base import SinkRecord
from millwheel.core.expressions.language import compile_expression
from millwheel.errors import RecordError

_TIMES = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
_CALL = re.compile(rf"({'|'.join(_TIMES)})\((.+)\)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NONE = "__HIVE_DEFAULT_PARTITION__"
"""The folder of records without a value, by the convention of Hive."""
_MOST_LETTERS = 200  # in a folder's name: file systems take 255 bytes
_EXAMPLE = "partition_by: [day(window_start), country]"


@dataclass(frozen=True, slots=True)
class _Level:
    name: str
    value_of: Callable[[Any], Any]


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
        expression = compile_expression(inner)
    except ValueError as ex:
        raise ValueError(f"option 'partition_by': {text}: {ex}") from None
    if not name and call is None and not expression.is_field:
        raise ValueError(f"option 'partition_by': {text} needs a name; write {{name: {text!r}}}")
    name = name or (text.strip() if call is None else call.group(1))
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"option 'partition_by': {name!r} is no name of letters, digits and _; {_EXAMPLE}"
        )
    return _Level(
        name, expression.evaluate if call is None else _time(call.group(1), expression.evaluate)
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
                f"{unit}() of `partition_by` has {moment} µs, which is no time of a calendar"
            ) from None

    return text


def _text(name: str, value: Any) -> str:
    if value is None or value == "":
        return NONE
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise RecordError(
            f"`partition_by` gave {name} = {str(value)[:80]!r}, which is no text, number or boolean"
        )
    text = quote(str(value), safe=" .-_:+@,()")
    if len(text) > _MOST_LETTERS or text.strip(". ") == "":
        raise RecordError(
            f"`partition_by` gave {name} = {text[:80]!r}, which is no name of a folder"
        )
    return text
