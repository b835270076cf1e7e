"""Rows as CSV: a header, then a line per row."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from millwheel.sinks.rows import json_lines


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
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([str(name) for name in self._columns])
        writer.writerows([cell(row.get(name)) for name in self._columns] for row in rows)
        return out.getvalue().encode("utf-8", "replace")


def cell(value: Any) -> Any:
    """A value as a field of CSV."""
    if value is None or type(value) in (str, int, float):
        return value
    text = json_lines([value]).decode().rstrip("\n")
    return text[1:-1] if text.startswith('"') and isinstance(value, bytes) else text
