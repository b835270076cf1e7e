"""CSV, written and read: rows as text that every reader of CSV takes, and the rows in a text.

What Python's writer quotes depends on the version of Python and on the ends of lines that it writes; here a field is
quoted if it has a quote, the delimiter, or a line break of any kind.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from millwheel.sinks.rows import json_lines

_LONGEST = 1 << 28  # of a field: the most that `max_line_bytes` allows
_ENDS = "\r\n"  # Fixed: with these every version of Python quotes both
csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))


class CsvRows:
    """Encodes rows of one shard. ``fields`` fixes the columns; without it, new fields of rows become further columns,
    after those of earlier files. None is an empty field; lists, maps and other types that CSV lacks are JSON text."""

    def __init__(self, fields: Sequence[str] = ()) -> None:
        self._fixed = bool(fields)
        self._columns = dict.fromkeys(fields)

    def encode(self, rows: Sequence[Mapping[Any, Any]]) -> bytes:
        """A CSV file in UTF-8."""
        if not self._fixed:
            self._columns.update(dict.fromkeys(name for row in rows for name in row))
        header = [cell(str(name)) for name in self._columns]
        cells = ([cell(row.get(name)) for name in self._columns] for row in rows)
        return "".join(f"{line}\n" for line in (*written([header]), *written(cells))).encode("utf-8", "replace")


def cell(value: Any) -> Any:
    """A value as a field of CSV."""
    if value is None or type(value) in (int, float):
        return value
    if type(value) is not str:
        text = json_lines([value]).decode().rstrip("\n")
        value = msgspec.json.decode(text) if text.startswith('"') else text
    return value.replace("\0", "\ufffd") if "\0" in value else value  # many readers refuse a file with zero bytes


def written(rows: Iterable[Sequence[Any]], delimiter: str = ",") -> list[str]:
    """Each row as text, without the end of its line."""
    lines = _Lines()
    csv.writer(lines, delimiter=delimiter, lineterminator=_ENDS).writerows(rows)
    return lines.found


def rows_in(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    """The rows in some lines. Raises csv.Error."""
    return list(csv.reader(lines, delimiter=delimiter, strict=True))


class _Lines:
    """What a writer of CSV writes to: it hands over one row at a time."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def write(self, line: str) -> int:
        self.found.append(line.removesuffix(_ENDS))
        return len(line)
