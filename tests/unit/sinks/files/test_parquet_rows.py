from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millwheel.sinks.files.parquet_rows import ParquetRows


def read(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data))


def encoded(fields: Mapping[str, str], *rows: Mapping[Any, Any]) -> pa.Table:
    return read(ParquetRows(fields).encode(rows))


def test_rows_come_back_and_a_missing_value_is_null() -> None:
    assert encoded({}, {"a": 1, "b": "x"}, {"a": 2}).to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_declared_fields_fix_the_columns_and_their_types() -> None:
    table = encoded({"a": "float", "b": "str"}, {"a": 1, "c": 5}, {"a": 2.5, "b": [1]})
    assert table.schema == pa.schema([("a", pa.float64()), ("b", pa.string())])
    assert table.to_pylist() == [{"a": 1.0, "b": None}, {"a": 2.5, "b": "[1]"}]


def test_a_value_that_does_not_fit_a_declared_column_is_null() -> None:
    assert encoded({"a": "int"}, {"a": "many"}, {"a": 3}).to_pylist() == [{"a": None}, {"a": 3}]


def test_a_column_keeps_its_type_from_file_to_file_or_becomes_wider() -> None:
    rows = ParquetRows({})
    assert read(rows.encode([{"a": 1}])).schema.field("a").type == pa.int64()
    assert read(rows.encode([{"a": 1.5}])).schema.field("a").type == pa.float64()
    assert read(rows.encode([{"a": 2}])).to_pylist() == [{"a": 2.0}]


def test_a_column_of_mixed_types_is_json_text() -> None:
    assert encoded({}, {"a": 1}, {"a": "x"}, {"a": {"b": 2}}).to_pylist() == [{"a": "1"}, {"a": "x"}, {"a": '{"b":2}'}]


def test_what_parquet_has_no_columns_for_is_text() -> None:
    assert encoded({}, {"a": {}}).to_pylist() == [{"a": "{}"}]
    assert encoded({}, {1: "x"}).to_pylist() == [{"1": "x"}]
