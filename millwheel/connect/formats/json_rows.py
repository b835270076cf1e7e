"""Rows as lines of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from millwheel.core.lazy_polars import pl

_encode = msgspec.json.Encoder(enc_hook=str, decimal_format="number").encode_lines
# become lines at once: so few stay in the cache, and take the memory of those before them
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
