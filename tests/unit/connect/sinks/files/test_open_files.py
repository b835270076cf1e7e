"""Which file rows go into, and what two contents are as one."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pyarrow.parquet as pq

from millwheel.connect.formats.row_lines import CsvRows
from millwheel.connect.sinks.files.open_files import MOST_OPEN, OpenFiles, Roll, join
from millwheel.connect.sinks.files.parquet import ParquetRows

MINUTE = 60_000_000


def test_without_a_roll_each_batch_has_a_file_of_its_own() -> None:
    files = OpenFiles("jsonl", None)
    assert [files.add("", name, b"{}\n", 1, 0).final for name in "ab"] == ["a", "b"]


def test_a_file_is_closed_by_size_and_by_time() -> None:
    files = OpenFiles("jsonl", Roll(6, MINUTE))
    steps = [("a", 0), ("b", 0), ("c", 0), ("d", MINUTE - 1), ("e", MINUTE)]
    assert [files.add("", name, b"{}\n", 1, now).final for name, now in steps] == [
        "a",
        "a",
        "c",
        "c",
        "e",
    ]


def test_the_file_that_has_had_no_rows_for_longest_is_closed_for_another() -> None:
    files = OpenFiles("jsonl", Roll(1 << 20, MINUTE))
    for number in range(MOST_OPEN):
        files.add(f"f{number}", f"f{number}/1", b"{}\n", 1, 0)
    files.add("f0", "f0/2", b"{}\n", 1, 0)
    files.add("more", "more/1", b"{}\n", 1, 0)
    assert files.add("f0", "f0/3", b"{}\n", 1, 0).final == "f0/1"
    assert files.add("f1", "f1/2", b"{}\n", 1, 0).final == "f1/2"


def test_csv_files_are_joined_below_one_header() -> None:
    csv = CsvRows()
    one, two = csv.encode([{"a": 1}]), csv.encode([{"a": 2}])
    assert join("csv", one, two) == b"a\n1\n2\n"
    assert join("csv", one, csv.encode([{"a": 2, "b": 3}])) is None


def test_parquet_files_are_joined_with_their_types() -> None:
    parquet = ParquetRows({})
    rows: list[dict[str, Any]] = [
        {"a": 1, "d": Decimal("1.5"), "l": [1]},
        {"a": 2, "d": Decimal("2.25"), "l": []},
    ]
    joined = join("parquet", *(parquet.encode([row]) for row in rows))
    assert joined is not None
    assert pq.read_table(io.BytesIO(joined)).to_pylist() == rows


def test_parquet_files_whose_columns_do_not_fit_stay_apart() -> None:
    assert (
        join("parquet", ParquetRows({}).encode([{"a": 1}]), ParquetRows({}).encode([{"a": "x"}]))
        is None
    )
