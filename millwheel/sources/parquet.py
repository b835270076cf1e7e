"""Parquet files, batch by batch. The position of a record is its row number, from 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millwheel.errors import SetupError
from millwheel.sources.base import Chunk, Reject
from millwheel.sources.fields import FieldTypes
from millwheel.sources.lines import MAX_RAW_BYTES

_ARROW_TYPES = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bool": pa.bool_()}


class ParquetReader:
    """Reads one file. Timestamps and times become µs, dates ISO text, decimals floats, whatever their unit was."""

    def __init__(self, path: str, schema: type | None, fields: Mapping[str, str]) -> None:
        self._path = path
        self._schema = schema
        self._fields = dict(fields)
        self._types = FieldTypes(fields)
        self._file = self._opened(path)
        self.rows: int = self._file.metadata.num_rows
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None
        self._at = -1

    def read(self, position: int, max_records: int) -> Chunk:
        """See :class:`millwheel.sources.base.Reader`."""
        batch = self.batch(position, max_records, None)
        if batch is None:
            return Chunk([], [], position, finished=True)
        end = position + batch.num_rows
        rows = plain_rows(batch)
        problems = dict(self._types.check(rows)) if self._schema is None else {}
        values: list[Any] = rows
        if self._schema is not None:
            values, problems = self._converted(rows)
        positions = list(range(position + 1, end + 1))
        rejects = [Reject(positions[i], str(rows[i])[:MAX_RAW_BYTES], why) for i, why in sorted(problems.items())]
        if problems:
            good = [i for i in range(len(values)) if i not in problems]
            positions, values = [positions[i] for i in good], [values[i] for i in good]
        return Chunk(positions, values, end, rejects, finished=end >= self.rows)

    def batch(self, position: int, max_rows: int, columns: list[str] | None) -> pa.RecordBatch | None:
        """The next rows after ``position``, at most ``max_rows``; None at the end. One reader always asks for the
        same columns, or for all (None)."""
        if position >= self.rows:
            return None
        try:
            if position != self._at:
                self._seek(position, max_rows, columns)
            batch = self._rest if self._rest is not None else next(self._batches)
        except (pa.ArrowException, OSError, StopIteration) as ex:
            raise SetupError(f"the Parquet file {self._path} is damaged after row {position}: {ex}") from ex
        self._rest = batch.slice(max_rows) if batch.num_rows > max_rows else None
        batch = batch.slice(0, max_rows)
        self._at = position + batch.num_rows
        return batch

    def close(self) -> None:
        self._file.close()

    def column_names(self) -> list[str]:
        """The top-level columns of the file."""
        names: list[str] = self._file.schema_arrow.names
        return names

    @staticmethod
    def _opened(path: str) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(path, memory_map=False)
        except (pa.ArrowException, OSError) as ex:
            raise SetupError(f"cannot read {path} as Parquet: {ex}; check the path and `format`") from ex

    def _seek(self, position: int, batch_size: int, columns: list[str] | None) -> None:
        """Begin with the row group that holds the row after ``position``."""
        group, before = 0, 0
        while before + (rows := self._file.metadata.row_group(group).num_rows) <= position:
            before += rows
            group += 1
        groups = list(range(group, self._file.metadata.num_row_groups))
        self._batches = iter(self._file.iter_batches(batch_size, row_groups=groups, columns=columns, use_threads=False))
        self._rest = None
        skip = position - before
        while skip:
            batch = next(self._batches)
            if batch.num_rows > skip:
                self._rest = batch.slice(skip)
            skip -= min(batch.num_rows, skip)

    def _converted(self, rows: list[dict[str, Any]]) -> tuple[list[Any], dict[int, str]]:
        try:
            return msgspec.convert(rows, list[self._schema]), {}  # type: ignore[name-defined]
        except msgspec.ValidationError:
            values: list[Any] = []
            problems = {}
            for place, row in enumerate(rows):
                try:
                    values.append(msgspec.convert(row, self._schema))
                except msgspec.ValidationError as ex:
                    values.append(None)
                    problems[place] = str(ex)
            return values, problems


def plain_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as dicts of plain data."""
    names = batch.schema.names
    columns = [plain(column).to_pylist() for column in batch.columns]
    if not names:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def plain(column: pa.Array) -> pa.Array:
    """A column without types that only Arrow has."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pc.cast(column, pa.timestamp("us", tz=kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_duration(kind):
        return pc.cast(column, pa.duration("us"), safe=False).cast(pa.int64())
    if pa.types.is_time(kind):
        return pc.cast(column, pa.time64("us"), safe=False).cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.string())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    return column.dictionary_decode() if pa.types.is_dictionary(kind) else column
