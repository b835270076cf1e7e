"""Records as rows of a result file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.lazy_polars import pl
from millwheel.sinks.base import SinkRecord

_encode = msgspec.json.Encoder(enc_hook=str).encode_lines
_ROWS = 8_000  # become lines at once: so few stay in the cache, and take the memory of those before them


def rows_of(records: Sequence[SinkRecord], with_key: bool, with_timestamp: bool) -> list[dict[str, Any]]:
    """One dict per record: its value, or ``{"value": …}`` for one that is neither dict nor Struct.

    ``key`` and ``timestamp`` (µs) are added on request, unless the value has fields of these names.
    """
    rows = [record.value if type(record.value) is dict else _row(record.value) for record in records]
    if with_timestamp:
        rows = [{"timestamp": record.timestamp, **row} for record, row in zip(records, rows, strict=True)]
    if with_key:
        rows = [{"key": record.key, **row} for record, row in zip(records, rows, strict=True)]
    return rows


def has_tuple_keys(batch: ColumnBatch) -> bool:
    """Whether the keys are tuples, which a column of a result file cannot hold."""
    return isinstance(batch.keys.dtype, pl.Struct)


def records_of(batch: ColumnBatch) -> list[SinkRecord]:
    """The records of a batch in columns, one by one."""
    rows = batch.rows()
    return list(map(SinkRecord, rows.keys, rows.values, rows.timestamps))


def frames_of(batches: Sequence[ColumnBatch], with_key: bool, with_timestamp: bool) -> list[pl.DataFrame]:
    """:func:`rows_of` for records in columns, of one stream: those with the same columns together. Their keys must not
    be tuples, unless the keys are left out."""
    frames = []
    for batch in batches:
        extra = [batch.keys.alias("key")] if with_key else []
        extra += [pl.Series("timestamp", batch.timestamps)] if with_timestamp else []
        own = batch.frame
        frames.append(pl.DataFrame([*(column for column in extra if column.name not in own.columns), *own]))
    return [pl.concat(list(alike)) for _, alike in groupby(frames, lambda frame: frame.schema)]


def json_lines_of(frames: Sequence[pl.DataFrame]) -> bytes:
    """A line of JSON per row, NaN and infinities as null."""
    # Not by write_ndjson, which hands pieces from thread to thread: it waits longer than it works where cores are busy.
    return b"".join(_lines(rows) for frame in frames for rows in frame.iter_slices(_ROWS))


def _lines(rows: pl.DataFrame) -> bytes:
    lines = rows.to_struct().struct.json_encode().alias("")
    text: bytes = pl.concat([lines, pl.Series("", [""])]).str.join("\n").cast(pl.Binary)[0]
    return text


def _row(value: Any) -> dict[str, Any]:
    if isinstance(value, msgspec.Struct):
        fields: dict[str, Any] = msgspec.to_builtins(value, enc_hook=str)
        return fields
    return {"value": value}


def json_lines(rows: Sequence[Any]) -> bytes:
    """A line of JSON per row. Values that JSON lacks are converted: bytes become base64 text, sets and tuples lists,
    times ISO 8601 text, NaN and infinities null, and other keys than text become text."""
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
