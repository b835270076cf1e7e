"""The kill in a run of unique visitors: rows are counted once, and a run that is over is not waited for."""

from __future__ import annotations

from pathlib import Path

from bench.uv_killed import Kill


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
