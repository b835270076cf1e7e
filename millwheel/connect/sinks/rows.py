"""Records as rows of a result file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from millwheel.connect.sinks.base import SinkRecord
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.lazy_polars import pl


def rows_of(
    records: Sequence[SinkRecord], with_key: bool, with_timestamp: bool
) -> list[dict[str, Any]]:
    """One dict per record: its value, or ``{"value": …}`` for one that is neither dict nor Struct.

    ``key`` and ``timestamp`` (µs) are added on request, unless the value has fields of these names.
    """
    rows = [
        record.value if type(record.value) is dict else _row(record.value) for record in records
    ]
    if with_timestamp:
        rows = [
            {"timestamp": record.timestamp, **row}
            for record, row in zip(records, rows, strict=True)
        ]
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


def frames_of(
    batches: Sequence[ColumnBatch], with_key: bool, with_timestamp: bool
) -> list[pl.DataFrame]:
    """:func:`rows_of` for records in columns, of one stream: those with the same columns together.
    Their keys must not be tuples, unless the keys are left out."""
    return together([frame_of(batch, with_key, with_timestamp) for batch in batches])


def frame_of(batch: ColumnBatch, with_key: bool, with_timestamp: bool) -> pl.DataFrame:
    """The rows of one batch."""
    extra = [batch.keys.alias("key")] if with_key else []
    extra += [pl.Series("timestamp", batch.timestamps)] if with_timestamp else []
    own = batch.frame
    return pl.DataFrame([*(column for column in extra if column.name not in own.columns), *own])


def together(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Those with the same columns, one behind the other, as one."""
    return [pl.concat(list(alike)) for _, alike in groupby(frames, lambda frame: frame.schema)]


def _row(value: Any) -> dict[str, Any]:
    if isinstance(value, msgspec.Struct):
        fields: dict[str, Any] = msgspec.to_builtins(value, enc_hook=str)
        return fields
    return {"value": value}
