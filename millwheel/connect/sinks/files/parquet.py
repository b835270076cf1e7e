"""Rows in Parquet, and the types of its columns, as ``fields`` names them: ``timestamp``,
``decimal(18, 2)``, ``list<struct<id: int>>``.

Records hold plain data, which is converted to the types of the columns: µs since 1970 or ISO 8601
text to a timestamp or a date, a number or text to a decimal, a map to a struct. A value that does
not fit is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from millwheel.connect.formats.row_lines import json_lines
from millwheel.core.instants.decimals import MOST_DIGITS
from millwheel.core.instants.numbers import object_us
from millwheel.core.instants.texts import text_us
from millwheel.core.lazy_polars import kind_of, pl
from millwheel.errors import RecordError

PLAIN = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bool": pa.bool_()}
_OTHER = {"timestamp": pa.timestamp("us", tz="UTC"), "date": pa.date32(), "bytes": pa.binary()}
NAMES = (
    "int, float, str, bool, timestamp, date, bytes, decimal(PRECISION, SCALE), list<TYPE>,"
    " struct<NAME: TYPE, …>"
)
_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\d+|[<>(),:])")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOST_DIGITS = 38  # Fixed: of a decimal of 128 bits
Convert = Callable[[Any], Any]


@cache
def column_type(text: str) -> pa.DataType:
    """The type that a text names. Raises ValueError, with a sentence, when there is none."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise ValueError(f"{text!r}; write one of {NAMES}")
    try:
        kind, rest = _parsed(tokens)
    except (IndexError, KeyError, ValueError):
        raise ValueError(f"{text!r}; write one of {NAMES}") from None
    if rest:
        raise ValueError(f"{text!r}; write one of {NAMES}")
    return kind


def _parsed(tokens: list[str]) -> tuple[pa.DataType, list[str]]:
    name, rest = tokens[0], tokens[1:]
    if name == "decimal":
        opened, precision, comma, scale, closed, *rest = rest
        if (opened, comma, closed) != ("(", ",", ")") or not int(scale) <= int(
            precision
        ) <= _MOST_DIGITS:
            raise ValueError
        return pa.decimal128(int(precision), int(scale)), rest
    if name == "list":
        inner, rest = _parsed(_after("<", rest))
        return pa.list_(inner), _after(">", rest)
    if name == "struct":
        return _struct(_after("<", rest))
    return {**PLAIN, **_OTHER}[name], rest


def _struct(tokens: list[str]) -> tuple[pa.DataType, list[str]]:
    fields = []
    while True:
        name, tokens = tokens[0], _after(":", tokens[1:])
        kind, tokens = _parsed(tokens)
        fields.append((name, kind))
        if tokens[0] == ">":
            return pa.struct(fields), tokens[1:]
        tokens = _after(",", tokens)


def _after(token: str, tokens: list[str]) -> list[str]:
    if tokens[0] != token:
        raise ValueError(token)
    return tokens[1:]


def converter(kind: pa.DataType) -> Convert | None:
    """Converts plain data to values that Arrow takes for a column of the type; None for types that
    need no conversion."""
    if kind in PLAIN.values():
        return None
    if pa.types.is_timestamp(kind):
        return _timestamp
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_struct(kind):
        return _map(kind)
    return _list(kind) if pa.types.is_list(kind) else _bytes


def as_column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column of a type that needs conversion."""
    convert = converter(kind) or _fit(kind)
    return pa.array([convert(value) for value in values], kind)


def _timestamp(value: Any) -> datetime | None:
    try:
        if isinstance(value, str):
            value = text_us(value)
        elif isinstance(value, date):
            value = object_us(value, 1)
        return _EPOCH + timedelta(microseconds=value) if type(value) is int else None
    except (RecordError, OverflowError):
        return None


def _date(value: Any) -> date | None:
    moment = _timestamp(value)
    return None if moment is None else moment.date()


def _decimal(kind: pa.DataType) -> Convert:
    quantum = Decimal(1).scaleb(-kind.scale)

    def convert(value: Any) -> Decimal | None:
        if not isinstance(value, (int, float, str, Decimal)) or isinstance(value, bool):
            return None
        try:
            number = Decimal(str(value)).quantize(quantum)
        except InvalidOperation:
            return None
        return (
            number
            if number.is_finite() and len(number.as_tuple().digits) <= kind.precision
            else None
        )

    return convert


def _map(kind: pa.DataType) -> Convert:
    parts = [
        (kind.field(index).name, _of(kind.field(index).type)) for index in range(kind.num_fields)
    ]

    def convert(value: Any) -> dict[str, Any] | None:
        return (
            {name: part(value.get(name)) for name, part in parts}
            if isinstance(value, dict)
            else None
        )

    return convert


def _list(kind: pa.DataType) -> Convert:
    one = _of(kind.value_type)
    return lambda value: (
        [one(part) for part in value] if isinstance(value, (list, tuple, set, frozenset)) else None
    )


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    return value if isinstance(value, bytes) else None


def _of(kind: pa.DataType) -> Convert:
    return converter(kind) or _fit(kind)


def _fit(kind: pa.DataType) -> Convert:
    types: Any = {pa.int64(): int, pa.float64(): (float, int), pa.string(): str, pa.bool_(): bool}[
        kind
    ]

    def convert(value: Any) -> Any:
        fits = isinstance(value, types) and (kind == pa.bool_() or not isinstance(value, bool))
        if fits and kind == pa.int64() and not -(2**63) <= value < 2**63:
            return None
        return value if fits else None

    return convert


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

    def _file(self, columns: Iterable[str], values: Callable[[str], Values]) -> bytes:
        """A file of columns with the names of ``columns``; ``values`` gives one of them."""
        names = dict.fromkeys(self._schema.names)
        if not self._fixed:
            names.update(dict.fromkeys(columns))
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
    """The type, with text for parts of which all values are null. Decimals have room for all digits
    that a declared one may have: the first file's would be too few for later ones."""
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
