"""Records as rows of JSON lines and Parquet files."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.connect.formats.row_lines import json_lines, json_lines_of
from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.connect.sinks.files.parquet import ParquetRows
from millwheel.connect.sinks.files.sink import build_files
from millwheel.connect.sinks.result_rows import change_rows, frames_of, rows_of
from millwheel.connect.sinks.stdout import build_stdout
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.windows.panes import Retraction, retracted
from tests.unit.connect.formats.test_row_lines import ROWS


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


RECORDS = [
    SinkRecord("a", {"n": 1}, 5),
    SinkRecord("a", retracted({"n": 1}), 5),
    SinkRecord("a", {"n": 2, "change": "mine"}, 6),
    SinkRecord("b", Retraction([1, 2]), 7),
    SinkRecord("b", {"__retraction__": 2, "value": 8}, 7),
]
ROWS = [
    {"change": "+", "n": 1},
    {"change": "-", "n": 1},
    {"change": "+", "n": 2},
    {"change": "-", "value": [1, 2]},
    {"change": "-", "value": 8},
]


def test_a_mark_stands_in_place_of_the_retraction() -> None:
    assert change_rows(RECORDS, False, False, "change") == ROWS


def test_key_timestamp_and_another_name_for_the_mark() -> None:
    assert change_rows(RECORDS[1:3], True, True, "op") == [
        {"op": "-", "key": "a", "timestamp": 5, "n": 1},
        {"op": "+", "key": "a", "timestamp": 6, "n": 2, "change": "mine"},
    ]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_files_hold_the_change_log(tmp_path: Path, form: str) -> None:
    sink = build_files({"path": "out", "format": form, "mode": "changelog"}, str(tmp_path))
    sink.check("root")
    assert sink.takes_retractions
    writer = sink.open("sink.out-0", 1)
    writer.publish(writer.prepare(SinkBatch(0, "1-1", RECORDS[:2])))
    [file] = (tmp_path / "out").glob(f"part-*.{form}")
    if form == "parquet":
        assert pq.read_table(file).to_pylist() == ROWS[:2]
    elif form == "csv":
        assert file.read_text() == "change,n\n+,1\n-,1\n"
    else:
        assert [json.loads(line) for line in file.read_text().splitlines()] == ROWS[:2]


def test_standard_output_can_be_a_change_log() -> None:
    out = io.StringIO()
    sink = build_stdout({"mode": "changelog"}, out)
    sink.publish(sink.prepare(SinkBatch(0, "1-1", RECORDS)))
    assert [json.loads(line) for line in out.getvalue().splitlines()] == ROWS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "replace"}, "option 'mode' is 'replace'; write one of append, changelog, upsert"),
        ({"by": "user"}, "option 'by' says which fields identify a row of mode: upsert"),
        ({"mode": "changelog", "by": ["user"]}, "option 'by' says which fields"),
        ({"mode": "changelog", "mark": ""}, "option 'mark' is empty"),
        (
            {"mode": "changelog", "format": "csv", "fields": {"a": "int"}},
            "lacks the mark; add change: str",
        ),
        (
            {"format": "jsonl", "fields": {"a": "int"}},
            "fixes the columns of format: parquet and csv",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_files({"path": "out", **options}, "/")


def test_printed_lines_cannot_be_replaced() -> None:
    with pytest.raises(ValueError, match="printed lines cannot be replaced; write changelog"):
        build_stdout({"mode": "upsert"})
