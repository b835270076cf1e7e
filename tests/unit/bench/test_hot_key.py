"""The input of the hot key, and that its rows are compared as they should be."""

from __future__ import annotations

import json
from pathlib import Path

from bench.hot_key import expected, results, write


def test_one_key_has_as_many_records_as_it_should_and_duckdb_counts_all(tmp_path: Path) -> None:
    write(tmp_path / "in", 2000, 0.9)
    rows = expected(tmp_path / "in")
    assert sum(count for _, _, count, _ in rows) == 2000
    assert 1700 < sum(count for key, _, count, _ in rows if key == 0) < 1950
    assert len({start for _, start, _, _ in rows}) == 10


def test_results_are_read_from_all_files(tmp_path: Path) -> None:
    for number in range(2):
        row = {"k": number, "window_start": 0, "window_end": 60_000_000, "n": 2, "spend": 7, "more": 3.5}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row) + "\n")
    assert set(results(tmp_path)) == {(0, 0, 2, 7), (1, 0, 2, 7)}
