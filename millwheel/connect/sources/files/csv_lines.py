"""CSV: a header, or declared columns; a quoted field may hold newlines."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from millwheel.connect.formats.row_lines import rows_in
from millwheel.connect.sources.base import Reject
from millwheel.connect.sources.files.lines import Block, Decoded, raw_text, reason_of
from millwheel.core.columns.declared_fields import from_texts
from millwheel.errors import RecordError, SetupError

_OPEN_QUOTE = "unexpected end of data"
_Row = Sequence[str]


class CsvLines:
    """Values are text, except for fields declared with another type.

    If a quote is not closed within ``max_record_bytes``, only its line is rejected, not the rest of
    the file. ``name`` is the file, for errors.
    """

    def __init__(
        self,
        schema: type | None,
        fields: Mapping[str, str],
        delimiter: str,
        columns: Sequence[str],
        max_record_bytes: int,
        name: str = "a CSV file",
    ) -> None:
        self.has_header = not columns
        self.one_line = False
        self._target: Any = None if schema is None else list[schema]  # type: ignore[valid-type]
        self._fields = fields
        self._delimiter = delimiter
        self._columns = list(columns)
        self._max_record = max_record_bytes
        self._name = name

    def begin(self, header: bytes) -> None:
        if not self.has_header:
            return
        try:
            if b"\0" in header:
                raise ValueError("it has zero bytes, as UTF-16 has")
            rows = self._rows([header.decode()])
        except (ValueError, csv.Error) as ex:
            raise SetupError(
                f"the first line of {self._name} is not a header ({ex}); {_fix(header)}, or declare"
                " columns: [...] if there is none"
            ) from ex
        self._columns = [name.strip() for name in rows[0]] if rows else []
        twice = sorted({name for name in self._columns if self._columns.count(name) > 1})
        if twice:
            raise SetupError(
                f"the header of {self._name} names {', '.join(map(repr, twice))} several times, and"
                " a record has each field once; give each column its own name in the file, or"
                " write format: {csv: {columns: [...]}} for files without a header"
            )

    def decode(self, block: Block) -> Decoded:
        return self._together(block) or self._one_by_one(block)

    def _rows(self, lines: list[str]) -> list[list[str]]:
        return rows_in(lines, self._delimiter)

    def _together(self, block: Block) -> Decoded | None:
        """All lines in one call, None when one of them is blank, bad, or not a record by itself."""
        if b"\0" in block.data:
            return None  # which some versions of Python refuse
        try:
            lines = block.data[: block.ends[-1]].decode().splitlines(keepends=True)
            if len(lines) != len(block.ends):
                return None
            rows = self._rows(lines)
            return Decoded(None, self._values(rows)) if len(rows) == len(lines) else None
        except (ValueError, csv.Error, msgspec.MsgspecError, RecordError):
            return None

    def _one_by_one(self, block: Block) -> Decoded:
        decoded = Decoded([], [], used=0)
        lines, positions = block.lines(), block.positions()
        while decoded.used < len(lines):
            count = self._record_lines(lines, decoded.used, block.last)
            if not count:
                break
            raw = b"".join(lines[decoded.used : decoded.used + count])
            decoded.used += count
            self._decode_one(raw, positions[decoded.used - 1], decoded)
        return decoded

    def _record_lines(self, lines: list[bytes], start: int, last: bool) -> int:
        """The number of lines of the record at ``start``; 0 if that depends on lines to come."""
        size = quotes = 0
        for end in range(start, len(lines)):
            size += len(lines[end])
            quotes += lines[end].count(b'"')
            if size > self._max_record:
                return 1
            if (end == start or quotes % 2 == 0) and not self._open_quote(lines[start : end + 1]):
                return end + 1 - start
        return 1 if last else 0

    def _open_quote(self, lines: list[bytes]) -> bool:
        try:
            self._rows([line.decode("utf-8", "replace") for line in lines])
        except csv.Error as ex:
            return str(ex) == _OPEN_QUOTE
        return False

    def _decode_one(self, raw: bytes, position: int, decoded: Decoded) -> None:
        if not raw.strip(b"\r\n"):
            return
        try:
            if b"\0" in raw:
                raise RecordError("the line has a zero byte")
            values = self._values(self._rows([raw.decode()]))
        except (ValueError, csv.Error, msgspec.MsgspecError, RecordError) as ex:
            reason = "a quote is not closed" if str(ex) == _OPEN_QUOTE else reason_of(ex, raw)
            decoded.rejects.append(Reject(position, raw_text(raw), reason))
            return
        decoded.add(position, values[0])

    def _values(self, rows: Sequence[_Row]) -> list[Any]:
        width = len(self._columns)
        wrong = next((row for row in rows if len(row) != width), None)
        if wrong is not None:
            raise RecordError(
                f"{len(wrong)} fields where there are {width} columns"
                f" ({', '.join(self._columns)[:200]})"
            )
        values: list[Any] = [
            dict(zip(self._columns, row, strict=True)) for row in self._typed(rows)
        ]
        return (
            values if self._target is None else msgspec.convert(values, self._target, strict=False)
        )

    def _typed(self, rows: Sequence[_Row]) -> Sequence[Sequence[Any]]:
        """The rows with declared fields converted, a column at a time."""
        typed = {
            index: self._fields[name]
            for index, name in enumerate(self._columns)
            if self._fields.get(name, "str") != "str"
        }
        if not typed or not rows:
            return rows
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        for index, kind in typed.items():
            columns[index] = from_texts(self._columns[index], kind, columns[index])
        return list(zip(*columns, strict=True))


def _fix(header: bytes) -> str:
    """The advice about a line that is not a header."""
    if header.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in header:
        return "it looks like UTF-16: convert the file to UTF-8"
    if b"\r" in header.rstrip(b"\r\n"):
        return "its lines seem to end with CR, as those of old Macs: convert them to LF"
    return "correct it"
