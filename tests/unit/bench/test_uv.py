"""The input of unique visitors, DuckDB's counts of it, and what state weighs."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import duckdb

from bench.uv import CHANNELS, WAYS, expected, near, results, state_bytes, write

DAY_US, MINUTE_US = 86_400_000_000, 60_000_000


def test_duckdb_counts_what_plain_sets_count_in_every_minute(tmp_path: Path) -> None:
    write(tmp_path / "in", 2_000, 600)
    rows = duckdb.execute(f"SELECT device, channel, ts FROM '{tmp_path}/in/*.parquet'").fetchall()
    assert (len(rows), len({device for device, _, _ in rows})) == (2_000, 600)
    seen: dict[tuple[int, int], set[str]] = defaultdict(set)
    for device, channel, ts in rows:
        minute = ts * 1000 // MINUTE_US + 1
        for end in range(minute * MINUTE_US, DAY_US + 1, MINUTE_US):
            seen[channel, end].add(device)
    assert expected(tmp_path / "in") == {at: len(devices) for at, devices in seen.items()}


def test_results_are_read_from_all_files_and_a_copy_is_no_result(tmp_path: Path) -> None:
    for number in range(2):
        row = {"channel": number, "window_start": 0, "window_end": 60, "visitors": 7}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row) + "\n")
    assert results(tmp_path) == {(0, 60): 7, (1, 60): 7}
    (tmp_path / "2.jsonl").write_text((tmp_path / "1.jsonl").read_text())
    assert results(tmp_path) == {}


def test_a_sketch_may_be_a_little_off() -> None:
    assert near({(0, 1): 1_030}, {(0, 1): 1_000})
    assert not near({(0, 1): 1_200}, {(0, 1): 1_000})
    assert not near({}, {(0, 1): 1_000})


def test_a_device_weighs_more_as_text_in_ten_channels_than_in_a_sketch() -> None:
    found = {way: state_bytes(way, 20 * CHANNELS * 100) for way in WAYS}
    assert found["near"] < 3 < found["text"]
    # one channel each: the text lies in the dictionary, with its number
    assert found["uv"] > found["text"]
