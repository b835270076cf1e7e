from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from millwheel.adapters.processes.child import DOING
from millwheel.engine.workers.bundle.work_note import DoingNote, InProgress, running

CODE = """
import os, sys
from millwheel.engine.workers.bundle.work_note import DoingNote, InProgress
note = DoingNote(sys.argv[1])
whole = note.put(InProgress("work", "work-0", 7, "0", "10000000000000000", 500))
note.put(InProgress("work", "work-0", 7, "0", "10000000000000000", 500, b"mark", "record", "'ann'"))
os.abort()
"""


def test_the_note_survives_its_process(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], check=False, capture_output=True)
    found = running((tmp_path / DOING).read_bytes())
    assert found == InProgress(
        "work", "work-0", 7, "0", "10000000000000000", 500, b"mark", "record", "'ann'"
    )  # type: ignore[arg-type]


def test_what_ran_before_goes_on_and_in_the_end_nothing_runs(tmp_path: Path) -> None:
    note = DoingNote(str(tmp_path))
    outer, inner = (InProgress("n", f"n-{number}", 1, "0", "ff") for number in range(2))  # type: ignore[arg-type]
    first = note.put(outer)
    second = note.put(inner)
    note.back(second)
    assert running((tmp_path / DOING).read_bytes()) == outer
    note.back(first)
    assert running((tmp_path / DOING).read_bytes()) is None


def test_what_does_not_fit_or_was_not_finished_tells_nothing(tmp_path: Path) -> None:
    note = DoingNote(str(tmp_path))
    note.put(InProgress("n", "n-0", 1, "0", "ff", mark=bytes(1 << 20)))  # type: ignore[arg-type]
    assert running((tmp_path / DOING).read_bytes()) is None
    assert running(b"") is None
    assert running(b"\0\0\0\5nonsense") is None
