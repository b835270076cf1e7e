"""Rows as lines of text that every reader of JSON and of CSV takes, and the rows in a text of CSV.

The quoting of Python's writer depends on the version of Python and on the ends of lines that it
writes; here a field is quoted if it has a quote, the delimiter, or a line break of any kind.
"""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from millwheel.core.lazy_polars import pl

_encode = msgspec.json.Encoder(enc_hook=str, decimal_format="number").encode_lines
# converted at once: so few stay in the cache, and reuse the memory of the rows before them
_ROWS = 8_000
_LARGE = 1e16  # Fixed: floats from here on have an exponent


def json_lines_of(frames: Sequence[pl.DataFrame]) -> bytes:
    """A line of JSON per row, NaN and infinities as null."""
    # Not by write_ndjson, which hands pieces from thread to thread: it waits longer than it works
    # where cores are busy.
    return b"".join(_lines(rows) for frame in frames for rows in frame.iter_slices(_ROWS))


def _lines(rows: pl.DataFrame) -> bytes:
    if any(_is_large(column) for column in rows.get_columns()):
        return json_lines(rows.to_dicts())
    lines = rows.to_struct().struct.json_encode().alias("")
    text: bytes = pl.concat([lines, pl.Series("", [""])]).str.join("\n").cast(pl.Binary)[0]
    return text


def _is_large(column: pl.Series) -> bool:
    """Whether a column has floats that Polars writes as 1e+16, and rows as 1e16."""
    if isinstance(column.dtype, pl.Struct):
        return any(map(_is_large, column.struct.unnest().get_columns()))
    most: Any = column.abs().max() if column.dtype == pl.Float64 else None
    return most is not None and most >= _LARGE


def json_lines(rows: Sequence[Any]) -> bytes:
    """A line of JSON per row. Values that JSON lacks are converted: bytes become base64 text, sets
    and tuples lists, times ISO 8601 text, NaN and infinities null, and other keys than text become
    text."""
    try:
        return _encode(rows)
    except (TypeError, ValueError):
        return _encode([_plain(row) for row in rows])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(part) for part in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str(_plain(key))
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


_LONGEST = 1 << 28  # of a field: the most that `max_line_bytes` allows
_ENDS = "\r\n"  # Fixed: with these every version of Python quotes both
MOST_COLUMNS = 1_000
"""The most columns of a file without declared fields: names of fields come from outside, and each
would be a column for ever."""
OTHER_FIELDS = "other_fields"
# the last four are the wide forms of the first, as some take them
_FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_log = logging.getLogger(__name__)
csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))


class CsvRows:
    """Encodes rows of one shard. ``fields`` fixes the columns; without it, new fields of rows
    become further columns, after those of earlier files, up to :data:`MOST_COLUMNS`. Further fields
    are JSON in the last one, :data:`OTHER_FIELDS`. None is an empty field; lists, maps and other
    types that CSV lacks are JSON text. ``spreadsheet_safe`` writes texts such that no spreadsheet
    computes them."""

    def __init__(self, fields: Sequence[str] = (), spreadsheet_safe: bool = False) -> None:
        self._fixed = bool(fields)
        self._columns = dict.fromkeys(fields)
        self._cell = safe_cell if spreadsheet_safe else cell
        self._warned = False

    def encode(self, rows: Sequence[Mapping[Any, Any]]) -> bytes:
        """A CSV file in UTF-8."""
        full = not self._fixed and self._is_full(rows)
        if full:
            rows = [self._with_others(row) for row in rows]
        names = [*self._columns, OTHER_FIELDS] if full else list(self._columns)
        header = [self._cell(str(name)) for name in names]
        cells = ([self._cell(row.get(name)) for name in names] for row in rows)
        return "".join(f"{line}\n" for line in (*written([header]), *written(cells))).encode(
            "utf-8", "replace"
        )

    def _is_full(self, rows: Sequence[Mapping[Any, Any]]) -> bool:
        """Give new fields their columns. True if there are more than a file has."""
        columns, full = self._columns, False
        for row in rows:
            for name in row:
                if name in columns:
                    continue
                if len(columns) < MOST_COLUMNS and name != OTHER_FIELDS:
                    columns[name] = None
                else:
                    full = True
        if full:
            self._warn_once()
        return full

    def _with_others(self, row: Mapping[Any, Any]) -> dict[Any, Any]:
        fields = {name: value for name, value in row.items() if name in self._columns}
        if others := {str(name): value for name, value in row.items() if name not in self._columns}:
            fields[OTHER_FIELDS] = others
        return fields

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "a CSV sink has rows of more than %d different fields; "
                "the others are JSON in the column %s. Name the "
                "columns: fields: {NAME: TYPE}", MOST_COLUMNS, OTHER_FIELDS,
            )  # fmt: skip


def safe_cell(value: Any) -> Any:
    """As :func:`cell`; a text that a spreadsheet would take for a formula gets an apostrophe in
    front, by which spreadsheets recognize a text. Numbers do not need one."""
    content = cell(value)
    risky = (
        type(content) is str
        and content[:1] in _FORMULA
        and content
        and not _NUMBER.fullmatch(content)
    )
    return f"'{content}" if risky else content


def cell(value: Any) -> Any:
    """A value as a field of CSV."""
    if value is None or type(value) in (int, float):
        return value
    if type(value) is not str:
        text = json_lines([value]).decode().rstrip("\n")
        value = msgspec.json.decode(text) if text.startswith('"') else text
    # many readers refuse a file with zero bytes
    return value.replace("\0", "\ufffd") if "\0" in value else value


def written(rows: Iterable[Sequence[Any]], delimiter: str = ",") -> list[str]:
    """Each row as text, without the end of its line."""
    lines = _Lines()
    csv.writer(lines, delimiter=delimiter, lineterminator=_ENDS).writerows(rows)
    return lines.texts


def rows_in(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    """The rows in some lines. Raises csv.Error."""
    return list(csv.reader(lines, delimiter=delimiter, strict=True))


class _Lines:
    """The file of a CSV writer, which hands over one row at a time."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, line: str) -> int:
        self.texts.append(line.removesuffix(_ENDS))
        return len(line)
