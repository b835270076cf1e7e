"""Records as rows of JSON lines and Parquet files."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.connect.formats.json_rows import json_lines, json_lines_of
from millwheel.connect.sinks.base import SinkRecord
from millwheel.connect.sinks.files.parquet_rows import ParquetRows
from millwheel.connect.sinks.rows import frames_of, rows_of
from millwheel.core.columns.batch import ColumnBatch
from tests.unit.connect.formats.test_json_rows import ROWS


def record(value: Any) -> SinkRecord:
    return SinkRecord("k", value, 5)


class Alert(msgspec.Struct):
    path: str
    hits: int


def read(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data))


def test_a_dict_is_its_own_row() -> None:
    assert rows_of([record({"a": 1})], with_key=False, with_timestamp=False) == [{"a": 1}]


def test_a_struct_is_a_row_of_its_fields() -> None:
    assert rows_of([record(Alert("/", 3))], with_key=False, with_timestamp=False) == [
        {"path": "/", "hits": 3}
    ]


@pytest.mark.parametrize("value", [7, "x", None, [1, 2]])
def test_a_value_that_is_no_dict_becomes_the_field_value(value: Any) -> None:
    assert rows_of([record(value)], with_key=False, with_timestamp=False) == [{"value": value}]


def test_key_and_timestamp_are_added_on_request() -> None:
    assert rows_of([record({"a": 1})], with_key=True, with_timestamp=True) == [
        {"key": "k", "timestamp": 5, "a": 1}
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_any_rows_make_a_parquet_file_of_as_many_rows(batches: list[list[dict[str, Any]]]) -> None:
    encoder = ParquetRows({})
    for rows in batches:
        assert read(encoder.encode(rows)).num_rows == len(rows)


def test_rows_with_different_fields_make_columns_of_all_of_them() -> None:
    table = read(ParquetRows({}).encode([{"a": 1}, {"b": "x"}]))
    assert table.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


def test_a_column_of_mixed_types_is_json_text() -> None:
    assert read(ParquetRows({}).encode([{"a": 1}, {"a": "x"}, {"a": [2]}]))["a"].to_pylist() == [
        "1",
        "x",
        "[2]",
    ]


def test_a_column_keeps_its_type_in_the_next_file() -> None:
    encoder = ParquetRows({})
    encoder.encode([{"a": 1.5}])
    assert read(encoder.encode([{"a": 2}])).schema.field("a").type == pa.float64()


def test_declared_fields_fix_columns_and_types() -> None:
    table = read(
        ParquetRows({"a": "float", "b": "str"}).encode([{"a": 1, "c": 9}, {"a": "no", "b": 2}])
    )
    assert table.schema.names == ["a", "b"]
    assert table.to_pylist() == [{"a": 1.0, "b": None}, {"a": None, "b": "2"}]


def test_columns_of_several_types_are_lines_in_their_order() -> None:
    frames = [pl.DataFrame({"n": values}) for values in ([1, 2], [3], [0.5], [4])]
    batches = [
        ColumnBatch("s", frame["n"].to_numpy(), np.arange(len(frame)), frame["n"], frame)
        for frame in frames
    ]
    found = frames_of(batches, with_key=False, with_timestamp=False)
    assert len(found) == 3
    assert json_lines_of(found) == b'{"n":1}\n{"n":2}\n{"n":3}\n{"n":0.5}\n{"n":4}\n'


def test_lines_of_columns_are_those_of_rows_however_many_there_are() -> None:
    texts = ['a"b', "\u2028\u00e9", "\x00\x1f/", "\\", "", None]
    floats = [1.0, -0.0, 1234.5, 2.0**-20, None, 0.1]
    rows = [
        {
            "n": number,
            "text": texts[number % 6],
            "size": floats[number % 6],
            "list": [0.5] * (number % 3),
            "yes": True,
        }
        for number in range(20_001)
    ]
    assert json_lines_of([pl.DataFrame(rows[:3]), pl.DataFrame(rows)]) == json_lines(
        rows[:3]
    ) + json_lines(rows)
    assert (
        json_lines_of([pl.DataFrame({"size": [math.nan, math.inf]})])
        == b'{"size":null}\n{"size":null}\n'
    )
    assert json_lines_of([pl.DataFrame(rows).head(0)]) == b""
