"""Values of messages as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from millwheel.core.model.damage import DAMAGE
from millwheel.sources.fields import FieldTypes
from millwheel.sources.files.json_lines import JsonLines
from millwheel.sources.files.lines import Block, Decoded, LineFormat, raw_text


class TextFormat:
    """Each value is ``{"value": …}``: text, or bytes when it is ``raw``."""

    has_header = False

    def __init__(self, raw: bool) -> None:
        self._raw = raw

    def begin(self, header: bytes) -> None:
        """There is none."""

    def decode(self, block: Block) -> Decoded:
        raise AssertionError("values are decoded one by one")

    def one(self, value: bytes) -> dict[str, Any]:
        """A value; DAMAGE for what is no text."""
        return {"value": value if self._raw else value.decode()}


def json_form(schema: type | None, fields: Mapping[str, str]) -> LineFormat:
    """JSON objects, one in each message."""
    return JsonLines(schema, FieldTypes(fields))


Decoding: TypeAlias = tuple[list[int], list[Any], dict[int, str]]
"""(Which values are records, the records, and what is wrong with the others, by number)."""


def decode_values(form: LineFormat | TextFormat, values: Sequence[bytes]) -> Decoding:
    """Decode values together where all of them are sound, else one by one."""
    if isinstance(form, TextFormat):
        return _one_by_one(form, values)
    ends = np.cumsum([len(value) + 1 for value in values], dtype=np.int64)
    decoded = form.decode(Block(b"\n".join(values) + b"\n", ends, 0))
    if decoded.positions is None:
        return list(range(len(values))), decoded.values, {}
    places = {end: place for place, end in enumerate(ends.tolist())}
    wrong = {places[reject.position]: reject.reason for reject in decoded.rejects}
    good = [places[position] for position in decoded.positions]
    blank = set(range(len(values))) - wrong.keys() - set(good)
    return good, decoded.values, wrong | dict.fromkeys(blank, "the value is empty")


def _one_by_one(form: TextFormat, values: Sequence[bytes]) -> Decoding:
    good: list[int] = []
    found: list[Any] = []
    wrong: dict[int, str] = {}
    for place, value in enumerate(values):
        try:
            found.append(form.one(value))
            good.append(place)
        except DAMAGE as ex:
            wrong[place] = str(ex)
    return good, found, wrong


def shown(value: bytes | None) -> str:
    """A value as a dead letter has it."""
    return "" if value is None else raw_text(value)
