"""Columns of Arrow as plain columns: exact, or null with a reason."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millwheel.connect.sources.arrow.columns import plain


@pytest.mark.parametrize(
    ("stored", "kind", "found"),
    [
        ([1, None, -1], pa.timestamp("s"), [1_000_000, None, -1_000_000]),
        ([1, None, -1], pa.timestamp("us", tz="UTC"), [1, None, -1]),
        ([1_999, None, -1], pa.timestamp("ns"), [1, None, -1]),
        ([1, None, 2], pa.duration("ms"), [1_000, None, 2_000]),
        ([1, None, -1], pa.date32(), ["1970-01-02", None, "1969-12-31"]),
        ([86_400_001, None, -1], pa.date64(), ["1970-01-02", None, "1969-12-31"]),
    ],
)
def test_times_are_microseconds_rounded_down_and_dates_are_text(
    stored: list[Any], kind: Any, found: list[Any]
) -> None:
    numbers = pa.array(stored, pa.int32() if kind.bit_width == 32 else pa.int64())
    column, wrong = plain(numbers.view(kind))
    assert (column.to_pylist(), wrong) == (found, {})


def test_only_rows_whose_time_or_date_cannot_be_had_are_null_and_have_a_reason() -> None:
    seconds = pa.array([5, 2**62, None, -(2**62)], pa.int64()).view(pa.timestamp("s"))
    column, wrong = plain(seconds)
    assert column.to_pylist() == [5_000_000, None, None, None]
    assert list(wrong) == [1, 3]
    assert str(2**62) in wrong[1]
    column, wrong = plain(pa.array([0, 10**7], pa.int32()).view(pa.date32()))
    assert column.to_pylist() == ["1970-01-01", None]
    assert wrong == {1: "the date 10000000 days after 1970 is outside the years 1 to 9999"}


def test_bytes_that_are_no_text_make_only_their_row_null() -> None:
    column, wrong = plain(
        pa.array([b"a", b"\xff", None, "ä".encode()], pa.binary()).view(pa.string())
    )
    assert column.to_pylist() == ["a", None, None, "ä"]
    assert list(wrong) == [1]
    assert "is not UTF-8" in wrong[1]


def test_decimals_are_floats_or_text_with_all_digits_also_in_dictionaries() -> None:
    column = pa.array([Decimal("1.50"), None], pa.decimal128(9, 2))
    assert plain(column).column.to_pylist() == [1.5, None]
    assert plain(column.dictionary_encode(), as_text=True).column.to_pylist() == ["1.50", None]
