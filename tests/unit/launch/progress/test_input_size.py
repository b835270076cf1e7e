from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from millwheel import FileSource, GeneratorSource, InjectionSource, Pipeline
from millwheel.launch.progress import input_size
from millwheel.launch.progress.input_size import Estimate, Expected, expected_records


def of(*sources: Any) -> Expected | None:
    p = Pipeline("p")
    for number, source in enumerate(sources):
        p.read(f"s{number}", source, timestamp="t").map({"t": "t"}, output=f"o{number}")
    return expected_records(p.spec())


def test_small_files_are_counted_and_large_ones_estimated(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "a.jsonl").write_text('{"t": 1}\n' * 99 + '{"t": 1}')
    (tmp_path / "b.jsonl").write_text('{"t": 2}\n' * 50)
    assert of(FileSource(tmp_path / "*.jsonl", "jsonl")) == Expected(150, True)
    monkeypatch.setattr(input_size, "_LOOK_BYTES", 100)
    found = of(FileSource(tmp_path / "*.jsonl", "jsonl"))
    assert found is not None
    assert (abs(found.records - 150) <= 1, found.exact) == (True, False)


def test_headers_are_no_records_and_parquet_knows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,n\n1,2\n3,4\n")
    pl.DataFrame({"t": [1, 2, 3]}).write_parquet(tmp_path / "a.parquet")
    assert of(FileSource(tmp_path / "a.csv", "csv")) == Expected(2, True)
    assert of(FileSource(tmp_path / "a.parquet", "parquet"), GeneratorSource(count=7)) == Expected(
        10, True
    )


def test_one_source_without_an_end_or_that_cannot_be_read_leaves_it_open(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"t": 1}\n')
    (tmp_path / "a.jsonl.gz").write_bytes(b"packed")
    rows = FileSource(tmp_path / "a.jsonl", "jsonl")
    for other in (
        GeneratorSource(),
        InjectionSource(),
        FileSource(tmp_path / "a.jsonl", "jsonl", follow=True),
    ):
        assert of(rows, other) is None
    assert of(FileSource(tmp_path / "*.gz", "jsonl")) is None
    assert of(FileSource(tmp_path / "none.jsonl", "jsonl")) is None


def test_lines_that_are_longer_than_a_look_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(input_size, "_LOOK_BYTES", 10)
    (tmp_path / "a.jsonl").write_text('{"t": 1, "text": "long"}\n' * 5)
    assert of(FileSource(tmp_path / "a.jsonl", "jsonl")) is None
    (tmp_path / "b.csv").write_text("")
    assert of(FileSource(tmp_path / "b.csv", "csv")) == Expected(0, True)


def test_of_many_parquet_files_only_some_are_looked_into(tmp_path: Path, monkeypatch: Any) -> None:
    for number in range(4):
        pl.DataFrame({"t": list(range(100))}).write_parquet(tmp_path / f"{number}.parquet")
    monkeypatch.setattr(input_size, "_LOOK_FILES", 2)
    assert of(FileSource(tmp_path / "*.parquet", "parquet")) == Expected(400, False)


def test_input_is_looked_into_only_after_three_seconds_of_reading_and_once(tmp_path: Path) -> None:
    p = Pipeline("p")
    p.read("s", FileSource(tmp_path / "a.jsonl", "jsonl"), timestamp="t").map(
        {"t": "t"}, output="o"
    )
    estimate = Estimate(p.spec())
    path = tmp_path / "a.jsonl"
    assert (estimate.after(0, 10.0), estimate.after(5, 100.0), estimate.after(9, 102.9)) == (
        None,
        None,
        None,
    )
    path.write_text('{"t": 1}\n' * 50)
    assert estimate.after(20, 103.0) == Expected(50, True)
    path.unlink()
    assert estimate.after(30, 104.0) == Expected(50, True)
