"""Records as rows of a result, and the treatment of retractions: they are refused, written as rows
of their own, or only the latest rows stay."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import groupby
from typing import Any

import msgspec

from millwheel.connect.sinks.base import SinkRecord
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.changes import are_retractions
from millwheel.core.lazy_polars import pl
from millwheel.core.windows.panes import RETRACTION_FIELD, as_retraction


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
    """:func:`rows_of` for records in columns, of one stream: frames with the same columns together.
    Their keys must not be tuples, unless the keys are left out."""
    return together([frame_of(batch, with_key, with_timestamp) for batch in batches])


def frame_of(batch: ColumnBatch, with_key: bool, with_timestamp: bool) -> pl.DataFrame:
    """The rows of one batch."""
    extra = [batch.keys.alias("key")] if with_key else []
    extra += [pl.Series("timestamp", batch.timestamps)] if with_timestamp else []
    own = batch.frame
    return pl.DataFrame([*(column for column in extra if column.name not in own.columns), *own])


def together(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """The frames, with neighbours that have the same columns joined into one."""
    return [pl.concat(list(alike)) for _, alike in groupby(frames, lambda frame: frame.schema)]


def _row(value: Any) -> dict[str, Any]:
    if isinstance(value, msgspec.Struct):
        fields: dict[str, Any] = msgspec.to_builtins(value, enc_hook=str)
        return fields
    return {"value": value}


class Mode(str, Enum):
    """How the rows of a sink relate to each other."""

    APPEND = "append"
    """Each record is a row. Not for streams with retractions."""
    CHANGELOG = "changelog"
    """Each record is a row with a mark: ``+`` for an emitted row, ``-`` for a retracted one."""
    UPSERT = "upsert"
    """The current rows: the latest of each identity, without retracted ones."""


MODES = tuple(mode.value for mode in Mode)
"""The choices of an option ``mode``."""


def change_rows(
    records: Sequence[SinkRecord], with_key: bool, with_timestamp: bool, mark: str
) -> list[dict[str, Any]]:
    """:func:`rows_of` with the field ``mark`` first: ``+``, or ``-`` for a retraction."""
    backs = [as_retraction(record.value) for record in records]
    plain = [
        record if back is None else SinkRecord(record.key, back.value, record.timestamp)
        for record, back in zip(records, backs, strict=True)
    ]
    rows = rows_of(plain, with_key, with_timestamp)
    return [
        {mark: "+" if back is None else "-", **without(row, mark)}
        for row, back in zip(rows, backs, strict=True)
    ]


def change_frames(
    batches: Sequence[ColumnBatch], with_key: bool, with_timestamp: bool, mark: str
) -> list[pl.DataFrame]:
    """:func:`change_rows` for records in columns, a frame for each batch; none if a record must be
    looked at by itself."""
    frames = []
    for batch in batches:
        back = are_retractions(batch)
        if back is None:
            return []
        frame = frame_of(batch, with_key, with_timestamp)
        rest = frame.drop(RETRACTION_FIELD, mark, strict=False)
        marks = pl.Series(mark, ["-" if back else "+"]).new_from_index(0, len(batch))
        frames.append(pl.DataFrame([marks, *rest.get_columns()]))
    return frames


def without(row: dict[str, Any], name: str) -> dict[str, Any]:
    """The row without a field of this name."""
    return {field: value for field, value in row.items() if field != name} if name in row else row
