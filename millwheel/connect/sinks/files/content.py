"""The content of a result file: records as rows, rows as bytes of a format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.connect.formats.avro.containers import ContainerRows
from millwheel.connect.formats.row_lines import CsvRows, json_lines, json_lines_of
from millwheel.connect.sinks.base import Refused, SinkBatch, SinkRecord
from millwheel.connect.sinks.result_rows import (
    change_frames,
    change_rows,
    frames_of,
    has_tuple_keys,
    records_of,
    rows_of,
    together,
)
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.lazy_polars import pl
from millwheel.errors import RecordError


@dataclass(frozen=True, slots=True)
class Shape:
    """How records become rows. ``form`` is the format. ``fields`` fixes the columns. ``mark`` is
    the field that distinguishes emitted from retracted rows, None where the rows are not changes.
    ``spreadsheet_safe`` is for CSV."""

    form: str
    with_key: bool
    with_timestamp: bool
    fields: Mapping[str, str]
    mark: str | None
    spreadsheet_safe: bool = False


class Content:
    """Makes the content of the files of one shard: records as rows, rows as bytes. ``avro`` encodes
    rows in that format."""

    def __init__(self, shape: Shape, avro: ContainerRows | None = None) -> None:
        self._shape = shape
        self._avro = avro
        self.suffix = shape.form
        self._encode: Callable[[list[dict[str, Any]]], bytes]
        self._encode_frame: Callable[[pl.DataFrame], bytes] | None = None
        if avro is not None:
            self._encode = avro.encode
        elif shape.form == "parquet":
            from millwheel.connect.sinks.files.parquet import ParquetRows

            parquet = ParquetRows(shape.fields)
            self._encode, self._encode_frame = parquet.encode, parquet.encode_frame
        else:
            self._encode = _encoder(shape)

    def of(self, batch: SinkBatch) -> bytes:
        """The content of a file with the records of a batch."""
        if not batch.columns:
            return self.encode(batch.records)
        frames = self._frames(batch.columns)
        if frames and self._shape.form == "jsonl":
            return json_lines_of(frames)
        if len(frames) == 1 and self._encode_frame is not None:
            return self._encode_frame(frames[0])
        return self.encode([record for columns in batch.columns for record in records_of(columns)])

    def _frames(self, batches: Sequence[ColumnBatch]) -> list[pl.DataFrame]:
        """The rows of records in columns; none if they must be made one by one."""
        shape = self._shape
        if shape.with_key and any(map(has_tuple_keys, batches)):
            return []
        if shape.mark is None:
            return frames_of(batches, shape.with_key, shape.with_timestamp)
        return together(change_frames(batches, shape.with_key, shape.with_timestamp, shape.mark))

    def encode(self, records: Sequence[SinkRecord]) -> bytes:
        """The content of a file."""
        return self._encode(self._rows(records))

    def fitting(self, records: Sequence[SinkRecord]) -> tuple[list[SinkRecord], list[Refused]]:
        """The records that the format can hold, and the others."""
        if self._avro is None:
            return list(records), []
        good, refused = [], []
        for record, row in zip(records, self._rows(records), strict=True):
            try:
                self._avro.check(row)
                good.append(record)
            except RecordError as ex:
                refused.append(Refused(record, str(ex)))
        return good, refused

    def _rows(self, records: Sequence[SinkRecord]) -> list[dict[str, Any]]:
        shape = self._shape
        if shape.mark is not None:
            return change_rows(records, shape.with_key, shape.with_timestamp, shape.mark)
        return rows_of(records, shape.with_key, shape.with_timestamp)


def _encoder(shape: Shape) -> Callable[[list[dict[str, Any]]], bytes]:
    if shape.form == "jsonl":
        return json_lines
    return CsvRows(list(shape.fields), shape.spreadsheet_safe).encode
