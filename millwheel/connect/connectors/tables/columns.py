"""Converts rows to columns of a table's types, and finds rows that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millwheel.connect.sinks.files.parquet import as_column


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type with the same values that has the widest numbers: rows take this type before they
    are cast to ``kind``."""
    types = pa.types
    if types.is_integer(kind):
        return pa.int64()
    if types.is_floating(kind):
        return pa.float64()
    if types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if types.is_struct(kind):
        return pa.struct([pa.field(part.name, plain_type(part.type)) for part in kind.fields])
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    return kind


class Columns:
    """Makes a table with a given schema from rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = pa.schema(
            [pa.field(field.name, field.type, field.nullable) for field in schema]
        )
        self._plain = {field.name: plain_type(field.type) for field in self.schema}

    def table(self, rows: Sequence[Mapping[str, Any]]) -> tuple[pa.Table, dict[int, str]]:
        """The rows as columns, and the errors of rows that do not fit, by index. If there are
        errors, ignore the columns."""
        reasons: dict[int, str] = {}
        for index, row in enumerate(rows):
            if strange := [name for name in row if name not in self._plain]:
                reasons.setdefault(index, f"the table has no column {str(strange[0])[:80]!r}")
        columns = [
            self._column(field, [row.get(field.name) for row in rows], reasons)
            for field in self.schema
        ]
        if reasons:
            return self.schema.empty_table(), reasons
        return pa.Table.from_arrays(columns, schema=self.schema), reasons

    def _column(self, field: pa.Field, values: list[Any], reasons: dict[int, str]) -> pa.Array:
        column, wrong = self._fitting(field, values)
        for index in wrong:
            reasons.setdefault(index, _reason(field, values[index]))
        return column

    def _fitting(self, field: pa.Field, values: list[Any]) -> tuple[pa.Array, list[int]]:
        column = as_column(values, self._plain[field.name])
        wrong = [
            index
            for index, value in enumerate(values)
            if value is not None and not column[index].is_valid
        ]
        if not field.nullable:
            wrong += [index for index, value in enumerate(values) if value is None]
        try:
            return _cast(column, field.type), wrong
        except pa.ArrowException:
            wrong += [
                index
                for index in range(len(values))
                if not _casts(column.slice(index, 1), field.type)
            ]
            return pa.nulls(len(values), field.type), wrong


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    # A float of 32 bits has fewer digits, as the type of its column asks for.
    return column.cast(kind, safe=not pa.types.is_floating(kind))


def _casts(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        _cast(column, kind)
    except pa.ArrowException:
        return False
    return True


def _reason(field: pa.Field, value: Any) -> str:
    if value is None:
        return f"column {field.name!r} takes no null"
    return f"column {field.name!r} is {field.type}, which {str(value)[:80]!r} does not fit"
