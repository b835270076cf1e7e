"""Nested types of Parquet as plain data."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millwheel.connect.sources.arrow.nested_values import nested_values

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NOON_US = 1_769_860_800_000_000


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("tz", [None, "UTC"])
def test_times_within_lists_and_structs_are_numbers(unit: str, tz: str | None) -> None:
    kind = pa.struct(
        [("at", pa.timestamp(unit, tz=tz)), ("all", pa.list_(pa.timestamp(unit, tz=tz)))]
    )
    column = pa.array([{"at": NOON, "all": [NOON, None]}, None], kind)
    assert nested_values(column) == ([{"at": NOON_US, "all": [NOON_US, None]}, None], {})


@pytest.mark.parametrize(
    ("value", "kind", "plain"),
    [
        ([Decimal("1.50")], pa.list_(pa.decimal128(9, 2)), [1.5]),
        ([date(2026, 1, 31)], pa.list_(pa.date32()), ["2026-01-31"]),
        ([time(0, 1, 2)], pa.list_(pa.time32("s")), [62_000_000]),
        ([timedelta(seconds=1)], pa.large_list(pa.duration("ns")), [1_000_000]),
        ([("a", 1)], pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        ([b"x", None], pa.list_(pa.binary()), [b"x", None]),
    ],
)
def test_other_types_are_plain_too(value: Any, kind: Any, plain: Any) -> None:
    assert nested_values(pa.array([value], kind)) == ([plain], {})
