from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from millwheel.control.savepoints.record import RECORD_FILE
from millwheel.control.savepoints.savepoint_list import NOTES_FILE, note, noted_savepoints


def record(name: str) -> Any:
    return SimpleNamespace(
        name=name, taken="2026-11-23T10:00:00+00:00", shards=[1, 2], held_ms=7, last=False
    )


def test_savepoints_are_listed_newest_first_with_whether_they_are_there(tmp_path: Path) -> None:
    assert noted_savepoints(tmp_path) == []
    for name in ("s1", "s2"):
        note(tmp_path, tmp_path / name, record(name))
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / RECORD_FILE).write_text("")
    found = noted_savepoints(tmp_path)
    assert [(each.name, each.shards, there) for each, there in found] == [
        ("s2", 2, False),
        ("s1", 2, True),
    ]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    note(tmp_path, tmp_path / "s1", record("s1"))
    with open(tmp_path / NOTES_FILE, "ab") as file:
        file.write(b'{"folder": "/x", "na')
    assert [each.name for each, _ in noted_savepoints(tmp_path)] == ["s1"]
