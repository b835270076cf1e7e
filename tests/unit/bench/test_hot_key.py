"""The input of the hot key, and that its rows are compared as they should be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.hot_key import KEYS, expected, of_even, results, shares_of, ways_of, write


def test_one_key_has_as_many_records_as_it_should_and_duckdb_counts_all(tmp_path: Path) -> None:
    write(tmp_path / "in", 2000, "hot")
    rows = expected(tmp_path / "in")
    assert sum(count for _, _, count, _ in rows) == 2000
    assert 1700 < sum(count for key, _, count, _ in rows if key == 0) < 1950
    assert len({start for _, start, _, _ in rows}) == 10


def test_results_are_read_from_all_files(tmp_path: Path) -> None:
    for number in range(2):
        row = {
            "k": number,
            "window_start": 0,
            "window_end": 60_000_000,
            "n": 2,
            "spend": 7,
            "more": 3.5,
        }
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row) + "\n")
    assert set(results(tmp_path)) == {(0, 0, 2, 7), (1, 0, 2, 7)}


def test_even_keys_have_even_shares(tmp_path: Path) -> None:
    write(tmp_path / "in", 4 * KEYS, "even")
    rows = expected(tmp_path / "in")
    assert sum(count for _, _, count, _ in rows) == 4 * KEYS
    assert sum(count for key, _, count, _ in rows if key == 0) < 30
    assert max(key for key, _, _, _ in rows) > KEYS * 0.99


@pytest.mark.parametrize(("exponent", "first"), [("1.1", 0.152), ("1.5", 0.386), ("2.0", 0.608)])
def test_keys_by_the_law_of_zipf(tmp_path: Path, exponent: str, first: float) -> None:
    shares = shares_of(exponent)
    assert shares.sum() == pytest.approx(1)
    assert shares[0] == pytest.approx(first, abs=0.01)
    assert shares[0] / shares[9] == pytest.approx(10 ** float(exponent))
    write(tmp_path / "in", 20_000, exponent)
    counted = sum(count for key, _, count, _ in expected(tmp_path / "in") if key == 0)
    assert counted == pytest.approx(20_000 * shares[0], rel=0.1)


def test_all_keys_run_whole_and_unequal_ones_divided_too() -> None:
    assert ways_of(["even", "hot", "1.1"], "auto", 16) == {
        "even": ("even", "hash"),
        "hot": ("hot", "hash"),
        "hot, auto": ("hot", "auto(16)"),
        "zipf 1.1": ("1.1", "hash"),
        "zipf 1.1, auto": ("1.1", "auto(16)"),
    }
    assert list(ways_of(["even", "1.1"], "none", 16)) == ["even", "zipf 1.1"]


def test_rates_are_compared_within_a_round() -> None:
    assert of_even([10, 20, 90], [10, 40, 100]) == 0.9
