"""JSON lines: one object a line."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from millwheel.connect.sources.base import Reject
from millwheel.connect.sources.files.lines import Block, Decoded, decode_each, raw_text
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.records import Values
from millwheel.errors import RecordError

_OPEN, _CLOSE, _RETURN = ord("{"), ord("}"), ord("\r")
_BYTE = re.compile(r"\(byte (\d+)\)")


class JsonLines:
    """Decodes into dicts, or into ``schema``. ``exact``: with fractions as they are written."""

    has_header = False
    one_line = True

    def __init__(self, schema: type | None, fields: FieldTypes, exact: bool = False) -> None:
        kind: Any = schema if schema is not None else dict[str, Any]
        decoder = (
            msgspec.json.Decoder(kind, float_hook=Decimal)
            if exact or (schema is None and fields.decimals)
            else msgspec.json.Decoder(kind)
        )
        self._one = decoder.decode
        self._many = decoder.decode_lines
        self._fields = fields if schema is None and fields else None
        self._kind = (
            schema if isinstance(schema, type) and issubclass(schema, msgspec.Struct) else None
        )
        # Values without a field in the schema are skipped, and their encoding is not checked.
        self._skips = schema is not None

    def begin(self, header: bytes) -> None:
        """JSON lines have no header."""

    def decode(self, block: Block) -> Decoded:
        decoded = self._together(block) or decode_each(block, self._line)
        problems = self._fields.check(decoded.values) if self._fields is not None else {}
        return self._without(problems, decoded, block) if problems else decoded

    def _together(self, block: Block) -> Decoded | None:
        """Decode all lines in one call; None when one of them is not a record."""
        if not one_object_a_line(block):
            return None
        try:
            if self._skips and not block.data.isascii():
                block.data[: block.ends[-1]].decode()
            values = self._many(memoryview(block.data)[: block.ends[-1]])
        except DAMAGE:
            return None
        if len(values) != len(block.ends):
            return None
        return Decoded(None, Values(values, self._kind, int(block.ends[-1])))

    def _line(self, line: bytes) -> Any:
        if self._skips:
            line.decode()
        try:
            return self._one(line)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, RecursionError) as ex:
            text = str(ex).replace(
                "Input data was truncated", "JSON is malformed: the line ends too soon"
            )
            raise RecordError(
                _BYTE.sub(lambda match: f"(column {int(match.group(1)) + 1})", text)
            ) from ex

    @staticmethod
    def _without(problems: dict[int, str], decoded: Decoded, block: Block) -> Decoded:
        lines = dict(zip(block.positions(), block.lines(), strict=True))
        positions = decoded.positions if decoded.positions is not None else list(lines)
        for index, reason in problems.items():
            decoded.rejects.append(
                Reject(positions[index], raw_text(lines[positions[index]]), reason)
            )
        decoded.rejects.sort(key=lambda reject: reject.position)
        good = [index for index in range(len(positions)) if index not in problems]
        return Decoded(
            [positions[i] for i in good], [decoded.values[i] for i in good], decoded.rejects
        )


class DeclaredJsonLines(JsonLines):
    """Decodes blocks of which every line has the fields of ``schema``; it takes no line of any
    other block."""

    def decode(self, block: Block) -> Decoded:
        refused = Reject(block.positions()[0], "", "some line is not as it is declared")
        return self._together(block) or Decoded([], [], [refused])


class WholeJsonLines(JsonLines):
    """Decodes only the fields of ``schema``, yet gives the records and rejects that decoding all
    fields would give. The decoder checks skipped values as well, with one exception, which is
    checked here: numbers beyond the range of floats."""

    def decode(self, block: Block) -> Decoded:
        decoded = super().decode(block)
        if not decoded.rejects:
            lines = block.lines() if (suspects := _huge_numbers(block)) else []
            for line in suspects:
                try:
                    _any(lines[line])
                except DAMAGE:
                    decoded.rejects.append(
                        Reject(
                            block.positions()[line], raw_text(lines[line]), "a number is too large"
                        )
                    )
        return decoded


_any = msgspec.json.Decoder().decode
_HUGE = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{200}")
_LONG_NUMBER = 200  # Fixed: with so many digits an exponent of two can make a number too large
_BEFORE_VALUES = np.frombuffer(b":,[ \t\r\n", np.uint8)  # Fixed: by JSON
_E, _SMALL_LETTER = ord("e"), 0x20


def _huge_numbers(block: Block) -> list[int]:
    """The lines that may hold a number beyond the range of floats, by its digits or an exponent of
    three digits."""
    data = (
        np.frombuffer(block.data, np.uint8)[: block.ends[-1]]
        if len(block.ends)
        else np.array([], np.uint8)
    )
    exponents = (
        np.flatnonzero(
            ((data[1:-3] | _SMALL_LETTER) == _E) & _digits(data[:-4]) & _digits(data[3:-1])
        )
        + 1
    )
    exponents = _of_numbers(data, exponents)
    lengths = np.diff(block.ends, prepend=0)
    lines = np.searchsorted(block.ends, exponents, side="right")
    long = np.flatnonzero(lengths > _LONG_NUMBER)
    starts = block.ends - lengths
    candidates = np.unique(np.concatenate((lines, long))).tolist()
    return [line for line in candidates if _HUGE.search(block.data, starts[line], block.ends[line])]


def _of_numbers(
    data: npt.NDArray[np.uint8], exponents: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The exponents that may belong to a number: three digits follow, and digits before them begin
    where a value may. Hexadecimal text is full of others."""
    after = data[exponents + 1]
    exponents = exponents[(_digits(after) | (after == ord("+"))) & _digits(data[exponents + 3])]
    begins = exponents - 1
    for _ in range(_LONG_NUMBER):  # of a longer one the line is looked at anyway
        inside = (begins > 0) & (_digits(data[begins]) | (data[begins] == ord("-")))
        if not inside.any():
            break
        begins = begins - inside
    candidates: npt.NDArray[np.int64] = exponents[
        np.isin(data[begins], _BEFORE_VALUES) | (begins == 0)
    ]
    return candidates


def _digits(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """A mask of the bytes that are digits; a point counts as one."""
    mask: npt.NDArray[np.bool_] = ((data - ord("0")) < len("0123456789")) | (data == ord("."))
    return mask


def one_object_a_line(block: Block) -> bool:
    """True when every line begins with a brace and ends with one.

    Inside a JSON value a closing brace is never followed by an opening one, and text holds no raw
    newline. So if as many valid values are found as there are lines, then each line is exactly one
    value, and decoding them together is the same as decoding them one by one.
    """
    data = np.frombuffer(block.data, np.uint8)
    starts = np.concatenate(([0], block.ends[:-1]))
    tails = data[np.maximum(block.ends - 2, 0)]
    if block.data[block.ends[-1] - 1] == _CLOSE:
        tails[-1] = _CLOSE
    if _RETURN in tails:
        tails = np.where(tails == _RETURN, data[np.maximum(block.ends - 3, 0)], tails)
    return bool((data[starts] == _OPEN).all() and (tails == _CLOSE).all())
