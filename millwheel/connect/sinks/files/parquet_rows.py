"""Rows as Parquet: one file per batch, with columns that keep their types from file to file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from millwheel.connect.formats.json_rows import json_lines
from millwheel.connect.sinks.files.parquet_types import as_column, column_type, converter
from millwheel.core.instants.decimals import MOST_DIGITS
from millwheel.core.lazy_polars import kind_of, pl

Values: TypeAlias = "list[Any] | pl.Series"


class ParquetRows:
    """Encodes rows of one shard. ``fields`` fixes the columns; without it, each new field of a row
    adds a column, a whole number column becomes a float column once floats appear, and a column of
    mixed types is JSON text. So is one that begins with nulls alone: every file must name a type
    that later ones can keep."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fixed = bool(fields)
        self._schema = pa.schema([(name, column_type(kind)) for name, kind in fields.items()])

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> bytes:
        """A Parquet file."""
        rows = _with_text_names(rows)
        names = dict.fromkeys(name for row in rows for name in row)
        return self._file(names, lambda name: [row.get(name) for row in rows])

    def encode_frame(self, frame: pl.DataFrame) -> bytes:
        """The file that :meth:`encode` makes of the rows of a frame, which has some."""
        nulls = [None] * frame.height
        return self._file(
            frame.columns, lambda name: frame[name] if name in frame.columns else nulls
        )

    def _file(self, found: Iterable[str], values: Callable[[str], Values]) -> bytes:
        """A file of columns with the names that were ``found``; ``values`` gives one of them."""
        names = dict.fromkeys(self._schema.names)
        if not self._fixed:
            names.update(dict.fromkeys(found))
        table = pa.table({name: self._column(name, values(name)) for name in names or ["value"]})
        if not self._fixed:
            self._schema = table.schema
        out = pa.BufferOutputStream()
        pq.write_table(table, out, compression="zstd")
        return bytes(out.getvalue())

    def _column(self, name: str, values: Values) -> pa.Array:
        declared = self._schema.field(name).type if name in self._schema.names else None
        if self._fixed and converter(declared) is not None:
            return as_column(_listed(values), declared)
        try:
            column = pa.array(_in_utc(values)) if isinstance(values, list) else _arrow(values)
            if _unwritable(column.type):
                raise TypeError("Parquet has no structs without fields")
            if declared is None:
                return column.cast(_typed(column.type))
            if column.type == declared:
                return column
            return column.cast(self._wider(declared, column.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            listed = _listed(values)
            if self._fixed:
                return pa.array([_fitting(value, declared) for value in listed], declared)
            return pa.array(
                [None if value is None else _text(value) for value in listed], pa.string()
            )

    def _wider(self, current: pa.DataType, other: pa.DataType) -> pa.DataType:
        if self._fixed:
            return current
        schemas = [pa.schema([("", kind)]) for kind in (current, other)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type


def _listed(values: Values) -> list[Any]:
    return values if isinstance(values, list) else values.to_list()


def _arrow(values: pl.Series) -> pa.Array:
    """The array that Arrow makes of the values one by one."""
    if values.null_count() == len(values) or not kind_of(values.dtype):
        return pa.array(_in_utc(values.to_list()))
    array = values.to_arrow()
    return array.cast(pa.string()) if values.dtype == pl.String else array


def _with_text_names(rows: Sequence[Mapping[Any, Any]]) -> Sequence[Mapping[str, Any]]:
    if all(type(name) is str for row in rows for name in row):
        return rows
    return [{str(name): value for name, value in row.items()} for row in rows]


def _unwritable(kind: Any) -> bool:
    if pa.types.is_struct(kind) and not kind.num_fields:
        return True
    return any(_unwritable(kind.field(index).type) for index in range(kind.num_fields))


def _typed(kind: Any) -> Any:
    """The type with text in place of what nothing but nulls says about. Decimals have room for all
    digits that a declared one may have: the first file's would be too few for later ones."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_decimal(kind):
        return pa.decimal128(max(kind.precision, MOST_DIGITS), kind.scale)
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_typed(part.type)) for part in kind.fields])
    return pa.list_(_typed(kind.value_type)) if pa.types.is_list(kind) else kind


def _in_utc(values: list[Any]) -> list[Any]:
    """The values with times in UTC, whose zone would else be that of the first one of each file."""
    if not any(type(value) is datetime for value in values):
        return values
    return [_utc(value) if type(value) is datetime else value for value in values]


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(timezone.utc) if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_lines([value]).decode().rstrip("\n")


def _fitting(value: Any, kind: Any) -> Any:
    """The value in a column of a fixed type, None when it does not fit there."""
    if value is not None and pa.types.is_string(kind):
        return _text(value)
    try:
        return pa.scalar(value).cast(kind).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
