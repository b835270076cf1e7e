"""How a sink treats retractions: refuse them, write each as a row of its own, or keep the latest
rows only."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from millwheel.connect.sinks.base import SinkRecord
from millwheel.connect.sinks.rows import frame_of, rows_of
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.changes import are_retractions
from millwheel.core.lazy_polars import pl
from millwheel.core.windows.panes import RETRACTION_FIELD, as_retraction


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
    """:func:`change_rows` for records in columns, a frame for each batch; none where a record has
    to be looked at by itself."""
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
