"""The kill in a run of unique visitors: rows are counted once, and a run that is over is not waited
for."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from bench.uv_killed import Kill

SILENT_S = 0.5


def test_rows_count_once_each(tmp_path: Path) -> None:
    kill = Kill(tmp_path, 5)
    (tmp_path / "a.jsonl").write_text("{}\n{}\n")
    assert [kill._new(), kill._new()] == [2, 0]
    (tmp_path / "b.jsonl").write_text("{}\n")
    (tmp_path / "c.txt").write_text("{}\n")
    assert kill._new() == 1


def test_a_run_that_is_over_before_has_no_silence(tmp_path: Path) -> None:
    kill = Kill(tmp_path, 5)
    kill.start()
    kill.end()
    assert kill.silence_s is None
    assert not kill.is_alive()


@pytest.mark.parametrize("rows_first", [True, False], ids=["after some rows", "from the kill on"])
@pytest.mark.parametrize("by", ["the run", "the look"])
def test_a_silence_until_the_end_counts(tmp_path: Path, by: str, rows_first: bool) -> None:
    kill = Kill(tmp_path, 1, looked_after_s=SILENT_S if by == "the look" else 60)
    at = time.monotonic()
    if rows_first:
        (tmp_path / "a.jsonl").write_text("{}\n")
    if by == "the run":
        threading.Timer(SILENT_S, kill._ended.set).start()
    found = kill._silence(at)
    assert SILENT_S * 0.8 < found < SILENT_S + 5


def test_the_longest_silence_may_be_between_rows(tmp_path: Path) -> None:
    kill = Kill(tmp_path, 1, looked_after_s=1.5 * SILENT_S)
    at = time.monotonic()
    threading.Timer(SILENT_S, lambda: (tmp_path / "a.jsonl").write_text("{}\n")).start()
    assert SILENT_S <= kill._silence(at) < SILENT_S + 5
