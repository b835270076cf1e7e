"""Rows as columns of a table's types."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millwheel.connect.connectors.tables.columns import Columns


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.int32(), 7, 1 << 40),
        (pa.int64(), 7, "7"),
        (pa.int64(), 7, 1.5),
        (pa.float32(), 0.5, "x"),
        (pa.large_string(), "x", 7),
        (pa.bool_(), True, 1),
        (pa.timestamp("us"), 1_000_000, "soon"),
        (pa.timestamp("ms", tz="UTC"), 1_000_000, [1]),
        (pa.date32(), "2026-01-31", "soon"),
        (pa.decimal128(4, 2), "12.34", "123.45"),
        (pa.list_(pa.int32()), [1, 2], 7),
        (pa.struct([("a", pa.int64())]), {"a": 1}, "x"),
    ],
)
def test_a_value_fits_or_its_row_is_named(kind: Any, good: Any, bad: Any) -> None:
    columns = Columns(pa.schema([("a", kind), ("b", pa.int64())]))
    table, reasons = columns.table([{"a": good, "b": 1}, {"b": 2}, {"a": None}])
    assert reasons == {}
    assert table.column("a").null_count == 2
    assert table.schema.field("a").type == kind
    _, reasons = columns.table([{"a": good}, {"a": bad}, {"a": None}])
    assert list(reasons) == [1]
    assert "column 'a' is" in reasons[1]


def test_a_field_without_a_column_and_a_null_where_none_may_be_are_named() -> None:
    columns = Columns(pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    _, reasons = columns.table([{"a": 1, "b": 2}, {"a": None}, {"a": 1}])
    assert reasons == {0: "the table has no column 'b'", 1: "column 'a' takes no null"}


def test_decimals_keep_their_digits() -> None:
    table, _ = Columns(pa.schema([("a", pa.decimal128(9, 2))])).table([{"a": "0.10"}, {"a": 0.1}])
    assert table.to_pylist() == [{"a": Decimal("0.10")}, {"a": Decimal("0.10")}]
