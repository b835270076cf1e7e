"""Parquet files, batch by batch. The position of a record is its row number, from 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millwheel.connect.sources.arrow.bounds import ParquetBounds
from millwheel.connect.sources.arrow.columns import Plain, plain, units_of
from millwheel.connect.sources.arrow.nested_values import nested_values
from millwheel.connect.sources.arrow.ranges import KeptFile, LocalFile
from millwheel.connect.sources.base import Chunk, FrameChunk, Reader, Reject
from millwheel.connect.sources.structs import Structs
from millwheel.core.columns.declared_fields import (
    FieldTypes,
    as_read,
    example_frame,
    frame_of,
    is_whole_inside,
    times_of,
)
from millwheel.core.instants.decimals import decimal_form, is_decimal
from millwheel.core.lazy_polars import dtype, pl
from millwheel.errors import SetupError

_RAW_BYTES = 65_536  # kept of a rejected record
_LEAST_ROWS = 1_000  # of a read, however wide the rows
_WARM_ROWS = 180_000  # to warm up the decoder: about a first read
_MOST_BYTES = 16 << 20
"""The approximate size of one read of rows, uncompressed."""
_DAMAGE = (pa.ArrowException, OSError, ValueError)
# of row groups, unpacked, whose pages are looked at before the first of them is read
_CHECKED_BYTES = 128 << 20
_FRAME_BYTES = 4 << 20
"""The bytes decoded at once for reads of columns, even for smaller reads: slicing a batch is
free."""


class ParquetReader(Reader):
    """Reads one file. Timestamps, times and durations of every unit become µs, dates ISO text, also
    within lists and structs. Decimals become floats, text where the field is declared as ``str``,
    and units where it is declared as a decimal."""

    def __init__(
        self, path: str, schema: type | None, fields: Mapping[str, str], content: Any = None
    ) -> None:
        """``content`` is an open file to read in place of the one at ``path``."""
        self._schema = schema
        self._fields = dict(fields)
        self._types = FieldTypes(fields)
        self._structs = None if schema is None else Structs(schema, _listed)
        self._batches = ParquetBatches(path, content)

    def read(self, position: int, max_records: int) -> Chunk:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        if (refused := self._batches.refused(position, None)) is not None:
            return Chunk(
                [],
                [],
                refused.end,
                [self._reject(position, refused)],
                refused.end >= self._batches.rows,
            )
        rows = min(max_records, max(int(_MOST_BYTES / self._batches.row_bytes), 1))
        batch = self._batches.after(position, rows, None)
        if batch is None:
            return Chunk([], [], position, finished=True)
        return self._chunk(position, batch)

    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        """See :class:`millwheel.connect.sources.base.Reader`. ``max_bytes`` counts whole rows,
        uncompressed."""
        if not self._fields or self._schema is not None:
            return None
        if (refused := self._batches.refused(position, list(self._fields))) is not None:
            nothing, finished = frame_of([], self._fields), refused.end >= self._batches.rows
            return FrameChunk(
                np.array([], np.int64),
                nothing,
                refused.end,
                [self._reject(position, refused)],
                finished=finished,
            )
        rows = max(int(max_bytes / self._batches.row_bytes), _LEAST_ROWS)
        batch = self._batches.after(position, rows, list(self._fields))
        if batch is None:
            return FrameChunk(
                np.array([], np.int64), frame_of([], self._fields), position, finished=True
            )
        end = position + batch.num_rows
        frame = self._frame(batch)
        if frame is not None:
            return FrameChunk(
                np.arange(position + 1, end + 1), frame, end, finished=end >= self._batches.rows
            )
        chunk = self._chunk(position, batch)
        frame = frame_of(chunk.values, self._fields)
        return FrameChunk(
            np.array(chunk.positions, np.int64), frame, end, chunk.rejects, chunk.finished
        )

    def take_whole(self, fields: Mapping[str, str]) -> bool:
        """See :class:`millwheel.connect.sources.base.Reader`. Only declared fields: others may be
        of many more types."""
        return fields.keys() == self._fields.keys() and set(self._batches.names) <= fields.keys()

    def close(self) -> None:
        self._batches.close()

    @staticmethod
    def _reject(position: int, refused: RefusedRows) -> Reject:
        return Reject(position + 1, "", refused.reason)

    def _chunk(self, position: int, batch: pa.RecordBatch) -> Chunk:
        end = position + batch.num_rows
        finished = end >= self._batches.rows
        positions = list(range(position + 1, end + 1))
        names = batch.schema.names
        texts = {name for name, kind in self._fields.items() if kind == "str" or is_decimal(kind)}
        converted = [
            plain(column, name in texts) for name, column in zip(names, batch.columns, strict=True)
        ]
        columns = [each.column for each in converted]
        wrong = _wrong(names, converted)
        structs = None if wrong else self._structs
        if (
            structs is not None
            and (records := structs.of(dict(zip(names, columns, strict=True)))) is not None
        ):
            return Chunk(positions, records, end, finished=finished)
        rows: list[Any] = plain_rows(names, columns, batch.num_rows, wrong)
        problems = self._types.check(rows) if self._schema is None else {}
        values = rows
        if self._schema is not None:
            values, problems = _converted(rows, self._schema)
        problems |= wrong
        rejects = [
            Reject(positions[i], str(rows[i])[:_RAW_BYTES], why)
            for i, why in sorted(problems.items())
        ]
        if problems:
            good = [i for i in range(len(values)) if i not in problems]
            positions, values = [positions[i] for i in good], [values[i] for i in good]
        return Chunk(positions, values, end, rejects, finished)

    def _frame(self, batch: pa.RecordBatch) -> pl.DataFrame | None:
        """The declared fields; None when a column has another type, and must be checked row by
        row."""
        columns = []
        for name, kind in self._fields.items():
            if name not in batch.schema.names:
                inside = dtype(as_read(self._fields)[name])
                columns.append(pl.Series(name, [None] * batch.num_rows, inside))
                continue
            if is_decimal(kind):
                units = units_of(batch.column(name), decimal_form(kind))
                if units is not None:
                    columns.append(pl.Series(name, units))
                    continue
            column, wrong = plain(batch.column(name), kind == "str" or is_decimal(kind))
            if is_whole_inside(kind):
                times = None if wrong else times_of(kind, pl.Series(name, column))
                if times is None:
                    return None
                columns.append(times)
                continue
            if wrong or not _fits(column.type, kind):
                return None
            columns.append(pl.Series(name, column).cast(dtype(kind)))
        return pl.DataFrame(columns)


class RefusedRows(NamedTuple):
    """Rows that are left out, up to ``end``."""

    end: int
    reason: str


class ParquetBatches:
    """The rows of a file, starting anywhere. ``rows`` is their number, ``row_bytes`` the memory of
    one, and ``names`` are its columns."""

    def __init__(self, path: str, content: Any = None) -> None:
        self._path = path
        try:
            source = LocalFile(path) if content is None else KeptFile(content)
            self._file = _opened(source)
        except (pa.ArrowException, OSError) as ex:
            raise SetupError(
                f"cannot read {path} as Parquet: {ex}; check the path and the format"
            ) from ex
        self.names = _each_once(path, self._file.schema_arrow.names)
        self._groups = RowGroups(path, self._file.metadata, source)
        self.rows, self.row_bytes = self._groups.rows, self._groups.row_bytes
        self._iterator: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None
        self._columns: list[str] | None = None
        self._at = self._until = -1

    def after(
        self, position: int, max_rows: int, columns: list[str] | None
    ) -> pa.RecordBatch | None:
        """The rows after ``position``, at most ``max_rows``; None at the end. Continuing with the
        same ``columns`` (None: all) is cheap; any other read starts again at a row group."""
        if position > self.rows:
            raise SetupError(
                f"the input file {self._path} has {self.rows} rows, but {position} were read"
                " before: it was changed. Restore it, or start with a new root"
            )
        if position == self.rows:
            return None
        try:
            if not self._goes_on(position, columns):
                self._seek(position, max_rows, columns)
            batch = self._rest if self._rest is not None else next(self._iterator)
        except (*_DAMAGE, StopIteration) as ex:
            raise _damaged(self._path, position, ex) from ex
        self._rest = batch.slice(max_rows) if batch.num_rows > max_rows else None
        batch = batch.slice(0, max_rows)
        self._at = position + batch.num_rows
        return batch

    def refused(self, position: int, columns: list[str] | None) -> RefusedRows | None:
        """The rows after ``position`` that are left out; None where the next one can be read.
        Raises SetupError where the file is damaged."""
        if not 0 <= position < self.rows or self._goes_on(position, columns):
            return None
        try:
            return self._groups.refused_after(position, columns)
        except _DAMAGE as ex:
            raise _damaged(self._path, position, ex) from ex

    def close(self) -> None:
        self._file.close(force=True)

    def _goes_on(self, position: int, columns: list[str] | None) -> bool:
        return position == self._at < self._until and columns == self._columns

    def _seek(self, position: int, max_rows: int, columns: list[str] | None) -> None:
        there = None if columns is None else [name for name in columns if name in self.names]
        size = max_rows if columns is None else max(int(_FRAME_BYTES / self.row_bytes), _LEAST_ROWS)
        groups, skip, self._until = self._groups.readable_after(position, there)
        size = self._groups.bounds.rows(groups, there, size)
        self._iterator = iter(
            self._file.iter_batches(size, row_groups=groups, columns=there, use_threads=False)
        )
        self._columns = columns
        self._rest = None
        while skip:
            batch = next(self._iterator)
            self._rest = batch.slice(skip) if batch.num_rows > skip else None
            skip -= min(batch.num_rows, skip)


class RowGroups:
    """The row groups of a file, and those of them that are left out."""

    def __init__(self, path: str, metadata: Any, source: LocalFile | KeptFile) -> None:
        self._path = path
        self._source = source
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        self._rows = [group.num_rows for group in groups]
        self.rows: int = metadata.num_rows
        self.row_bytes = max(
            sum(group.total_byte_size for group in groups) / max(self.rows, 1), 1.0
        )
        self.bounds = ParquetBounds(metadata, source.read_at)

    def refused_after(self, position: int, columns: list[str] | None) -> RefusedRows | None:
        """The rows after ``position`` that are left out; None where the next one can be read."""
        group, skip = self._at(position)
        if (reason := self._refused(group, columns)) is None:
            return None
        end = position - skip + self._rows[group]
        where = f"row group {group + 1} of {self._path}"
        return RefusedRows(
            end, f"{where} {reason}: its rows {position + 1:,} to {end:,} are left out"
        )

    def readable_after(
        self, position: int, columns: list[str] | None
    ) -> tuple[list[int], int, int]:
        """The row groups that are read in one go for the rows after ``position``, the number of
        their rows that come before, and the position behind them. Damage behind the first is found
        when that is read."""
        first, skip = self._at(position)
        self._source.expect(self.bounds.spans(first, columns))
        group, size = first + 1, self.bounds.plain_bytes(first, columns)
        with suppress(*_DAMAGE):
            while (
                group < len(self._rows)
                and size < _CHECKED_BYTES
                and self._refused(group, columns) is None
            ):
                size += self.bounds.plain_bytes(group, columns)
                group += 1
        return [*range(first, group)], skip, position - skip + sum(self._rows[first:group])

    def _at(self, position: int) -> tuple[int, int]:
        """The row group of the row after ``position``, and how many of its rows come before
        that."""
        group, skip = 0, position
        while self._rows[group] <= skip:
            skip -= self._rows[group]
            group += 1
        return group, skip

    def _refused(self, group: int, columns: list[str] | None) -> str | None:
        self._source.expect(self.bounds.spans(group, columns))
        return self.bounds.refused(group, columns)


def _damaged(path: str, position: int, ex: Exception) -> SetupError:
    return SetupError(f"the Parquet file {path} is damaged after row {position}: {ex}; restore it")


def _opened(source: LocalFile | KeptFile) -> pq.ParquetFile:
    # Times of Spark and Hive, of 96 bits, have nanoseconds, with which only the years 1677 to 2262
    # fit into 64 bits. The needed columns of a row group of an object are fetched in few requests.
    return pq.ParquetFile(source.file, pre_buffer=source.buffered, coerce_int96_timestamp_unit="us")


def _each_once(path: str, names: list[str]) -> list[str]:
    twice = (
        sorted({name for name in names if names.count(name) > 1})
        if len(set(names)) < len(names)
        else []
    )
    if twice:
        raise SetupError(
            f"the Parquet file {path} has several columns named {', '.join(map(repr, twice))}; a"
            " record has each field once: write the file with other names"
        )
    return names


def warm_up() -> None:
    """Read a batch, which loads code, starts threads and allocates memory. It saves the first
    records a tenth of a second."""
    sink = pa.BufferOutputStream()
    sample = example_frame({"number": "int", "size": "float", "text": "str"}, _WARM_ROWS)
    pq.write_table(sample.to_arrow(), sink)
    for batch in pq.ParquetFile(pa.BufferReader(sink.getvalue())).iter_batches(
        _WARM_ROWS, use_threads=False
    ):
        pl.DataFrame(
            [
                pl.Series(name, column)
                for name, column in zip(sample.columns, batch.columns, strict=True)
            ]
        )


def _converted(rows: list[Any], schema: type) -> tuple[list[Any], dict[int, str]]:
    """The rows as ``schema``, and the errors of rows that do not fit, by index."""
    try:
        return msgspec.convert(rows, list[schema]), {}  # type: ignore[valid-type]
    except msgspec.ValidationError:
        values: list[Any] = []
        problems = {}
        for index, row in enumerate(rows):
            try:
                values.append(msgspec.convert(row, schema))
            except msgspec.ValidationError as ex:
                values.append(None)
                problems[index] = str(ex)
        return values, problems


def plain_rows(
    names: list[str], columns: list[pa.Array], rows: int, wrong: dict[int, str]
) -> list[dict[str, Any]]:
    """Rows as dicts. Rows with a nested value that cannot be converted are added to ``wrong``."""
    if not names:
        return [{} for _ in range(rows)]
    listed = []
    for name, column in zip(names, columns, strict=True):
        if not pa.types.is_nested(column.type):
            listed.append(_listed(column))
            continue
        values, problems = nested_values(column)
        listed.append(values)
        for row, reason in problems.items():
            wrong.setdefault(row, f"field {name!r}: {reason}")
    return [dict(zip(names, row, strict=True)) for row in zip(*listed, strict=True)]


def _wrong(names: list[str], columns: list[Plain]) -> dict[int, str]:
    """The rows with a value that cannot be converted, and the reasons."""
    wrong: dict[int, str] = {}
    for name, each in zip(names, columns, strict=True):
        for row, reason in each.wrong.items():
            wrong.setdefault(row, f"field {name!r}: {reason}")
    return wrong


def _listed(column: pa.Array) -> list[Any]:
    """Arrow's own ``to_pylist`` makes a scalar object per value, which takes ten times as long."""
    return pl.Series(column).to_list()


def _fits(column_type: pa.DataType, kind: str) -> bool:
    """True when every value of a column has the declared type."""
    if pa.types.is_null(column_type):
        return True
    if kind == "str":
        return bool(
            pa.types.is_string(column_type)
            or pa.types.is_large_string(column_type)
            or column_type == pa.string_view()
        )
    if kind == "bool":
        return bool(pa.types.is_boolean(column_type))
    whole = pa.types.is_integer(column_type)
    if kind == "int":
        return bool(whole and column_type != pa.uint64())
    return bool(whole or pa.types.is_floating(column_type))
