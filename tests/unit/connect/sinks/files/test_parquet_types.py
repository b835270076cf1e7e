"""Types of columns by name, and values that fit them or do not."""

from __future__ import annotations

import io
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millwheel.connect.sinks.files.parquet_rows import ParquetRows
from millwheel.connect.sinks.files.parquet_types import as_column, column_type

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
