from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millwheel.connect.sinks.files.parquet import ParquetRows, as_column, column_type

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NOON_US = 1_769_860_800_000_000


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("decimal(18, 2)", pa.decimal128(18, 2)),
        ("list<str>", pa.list_(pa.string())),
        (
            "list<struct<id: int, at: date>>",
            pa.list_(pa.struct([("id", pa.int64()), ("at", pa.date32())])),
        ),
    ],
)
def test_a_name_is_a_type(text: str, kind: pa.DataType) -> None:
    assert column_type(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "number",
        "decimal",
        "decimal(2,3)",
        "decimal(99,1)",
        "list<",
        "list<int",
        "struct<>",
        "int int",
        "int;",
        "",
    ],
)
def test_other_texts_are_no_types(text: str) -> None:
    with pytest.raises(ValueError, match="write one of int, float"):
        column_type(text)


@pytest.mark.parametrize(
    ("text", "value", "found"),
    [
        ("timestamp", NOON_US, NOON),
        ("timestamp", "2026-01-31T12:00:00Z", NOON),
        ("timestamp", "2026-01-31T12:00:00", NOON),
        ("timestamp", "soon", None),
        ("timestamp", 1 << 62, None),
        ("timestamp", 1.5, None),
        ("date", "2026-01-31", date(2026, 1, 31)),
        ("date", NOON_US, date(2026, 1, 31)),
        ("decimal(5, 2)", "123.45", Decimal("123.45")),
        ("decimal(5, 2)", 0.1, Decimal("0.10")),
        ("decimal(5, 2)", 1234.5, None),
        ("decimal(5, 2)", True, None),
        ("decimal(5, 2)", "NaN", None),
        ("list<int>", [1, "x", None, 1 << 70], [1, None, None, None]),
        ("list<int>", 1, None),
        ("struct<a: int, b: list<timestamp>>", {"a": 1, "b": [NOON_US]}, {"a": 1, "b": [NOON]}),
        ("struct<a: int>", {"b": 1}, {"a": None}),
        ("struct<a: int>", [1], None),
        ("bytes", b"x", b"x"),
        ("bytes", 1, None),
        ("decimal(5, 2)", None, None),
    ],
)
def test_a_value_becomes_what_its_column_holds_or_nothing(
    text: str, value: Any, found: Any
) -> None:
    assert as_column([value], column_type(text)).to_pylist() == [found]


def test_declared_types_are_the_types_of_the_file() -> None:
    rows = ParquetRows(
        {"at": "timestamp", "cost": "decimal(9, 2)", "items": "list<struct<id: int>>"}
    )
    data = rows.encode([{"at": NOON_US, "cost": 1.5, "items": [{"id": 7}]}, {"items": []}])
    table = pq.read_table(io.BytesIO(data))
    assert table.schema.types == [
        pa.timestamp("us", tz="UTC"),
        pa.decimal128(9, 2),
        pa.list_(pa.field("element", pa.struct([("id", pa.int64())]))),
    ]
    assert table.to_pylist() == [
        {"at": NOON, "cost": Decimal("1.50"), "items": [{"id": 7}]},
        {"at": None, "cost": None, "items": []},
    ]


def test_decimals_are_taken_as_they_are() -> None:
    column = as_column([Decimal("0.10"), Decimal("12.3"), None], pa.decimal128(5, 2))
    assert column.to_pylist() == [Decimal("0.10"), Decimal("12.30"), None]


def read(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data))


def encoded(fields: Mapping[str, str], *rows: Mapping[Any, Any]) -> pa.Table:
    return read(ParquetRows(fields).encode(rows))


def test_rows_come_back_and_a_missing_value_is_null() -> None:
    assert encoded({}, {"a": 1, "b": "x"}, {"a": 2}).to_pylist() == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": None},
    ]


def test_declared_fields_fix_the_columns_and_their_types() -> None:
    table = encoded({"a": "float", "b": "str"}, {"a": 1, "c": 5}, {"a": 2.5, "b": [1]})
    assert table.schema == pa.schema([("a", pa.float64()), ("b", pa.string())])
    assert table.to_pylist() == [{"a": 1.0, "b": None}, {"a": 2.5, "b": "[1]"}]


def test_decimals_have_one_type_in_all_files() -> None:
    rows = ParquetRows({})
    for text in ("1.50", "123456789012345.25"):
        table = read(rows.encode([{"a": Decimal(text), "b": {"c": Decimal(text)}}]))
        kind = pa.decimal128(18, 2)
        assert table.schema == pa.schema([("a", kind), ("b", pa.struct([("c", kind)]))])
        assert table.to_pylist() == [{"a": Decimal(text), "b": {"c": Decimal(text)}}]
    for name, value in (("float", 1.5), ("str", "1.50")):
        assert encoded({"a": name}, {"a": Decimal("1.50")}).to_pylist() == [{"a": value}]


def test_a_value_that_does_not_fit_a_declared_column_is_null() -> None:
    assert encoded({"a": "int"}, {"a": "many"}, {"a": 3}).to_pylist() == [{"a": None}, {"a": 3}]


def test_a_column_keeps_its_type_from_file_to_file_or_becomes_wider() -> None:
    rows = ParquetRows({})
    assert read(rows.encode([{"a": 1}])).schema.field("a").type == pa.int64()
    assert read(rows.encode([{"a": 1.5}])).schema.field("a").type == pa.float64()
    assert read(rows.encode([{"a": 2}])).to_pylist() == [{"a": 2.0}]


def test_a_column_of_mixed_types_is_json_text() -> None:
    assert encoded({}, {"a": 1}, {"a": "x"}, {"a": {"b": 2}}).to_pylist() == [
        {"a": "1"},
        {"a": "x"},
        {"a": '{"b":2}'},
    ]


def test_what_parquet_has_no_columns_for_is_text() -> None:
    assert encoded({}, {"a": {}}).to_pylist() == [{"a": "{}"}]
    assert encoded({}, {1: "x"}).to_pylist() == [{"1": "x"}]


@pytest.mark.parametrize("empty", [None, {"x": None}, [None], [], {"x": [None]}])
def test_a_column_of_nulls_alone_has_a_type_that_later_files_keep(empty: Any) -> None:
    rows = ParquetRows({})
    first = read(rows.encode([{"a": empty, "b": 1}]))
    later = read(
        rows.encode([{"a": None if empty is None else empty, "b": 2}, {"a": None, "b": 3}])
    )
    assert first.schema == later.schema
    assert "null" not in str(first.schema.field("a").type)


def test_text_comes_after_nulls_in_the_same_type() -> None:
    rows = ParquetRows({})
    tables = [read(rows.encode([{"e": value}])) for value in (None, "e", None, 5)]
    assert {str(table.schema.field("e").type) for table in tables} == {"string"}
    assert [table.to_pylist()[0]["e"] for table in tables] == [None, "e", None, "5"]


def test_times_of_all_zones_are_in_utc() -> None:
    rows, zone = ParquetRows({}), timezone(timedelta(hours=2))
    moment = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    tables = [
        read(rows.encode([{"at": at}]))
        for at in (moment.astimezone(zone), moment, moment.replace(tzinfo=None))
    ]
    assert len({str(table.schema) for table in tables}) == 1
    assert [table.to_pylist() for table in tables] == [[{"at": moment}]] * 3
    declared = encoded(
        {"at": "timestamp"}, {"at": moment.astimezone(zone)}, {"at": "2026-01-01T14:00:00+0200"}
    )
    assert declared.to_pylist() == [{"at": moment}] * 2


FRAMES = (
    pl.DataFrame({"n": [1, None], "x": [0.5, float("nan")], "s": ["é", None], "b": [True, None]}),
    pl.DataFrame({"n": [None, None], "x": [None, 1.5], "s": ["", "a\0"], "new": [1, 2]}).cast(
        {"n": pl.Int64}
    ),
    pl.DataFrame({"n": [1.5, 2.0], "x": [1, 2], "s": [1, 2], "b": [False, True]}),
    pl.DataFrame({"n": [2**63 - 1], "d": [{"p": 1}], "e": [[1, 2]]}),
    pl.DataFrame({"n": ["x", "y"]}).slice(1),
)
WIDE = {"n": "decimal(20, 2)", "x": "float", "s": "str", "b": "bool", "e": "list<int>"}


@pytest.mark.parametrize("fields", [{}, WIDE, {"n": "int", "s": "str", "missing": "timestamp"}])
def test_a_frame_is_the_file_of_its_rows(fields: Mapping[str, str]) -> None:
    rows, frames = ParquetRows(fields), ParquetRows(fields)
    for frame in FRAMES:
        assert rows.encode(frame.to_dicts()) == frames.encode_frame(frame)
