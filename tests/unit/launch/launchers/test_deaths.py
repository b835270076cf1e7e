from __future__ import annotations

import signal
from pathlib import Path

import pytest

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.processes.child import DOING, Remains
from millwheel.adapters.processes.exits import Exit
from millwheel.adapters.spaces.hang_notes import HangNotes
from millwheel.engine.workers.bundle.hangs import decode_hang
from millwheel.engine.workers.bundle.work_note import DoingNote, InProgress
from millwheel.launch.launchers.base import WorkerExit
from millwheel.launch.launchers.deaths import Deaths

CRASH = (
    'Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  File "/p/bad.py", line'
    " 7 in f\n"
)


@pytest.fixture
def notes(tmp_path: Path) -> HangNotes:
    return HangNotes(open_space(str(tmp_path)))


def remains(folder: Path, mark: bytes, lacked_memory: bool = False) -> Remains:
    folder.mkdir()
    DoingNote(str(folder)).put(
        InProgress("work", "work-0", 7, "0", "ff", 500, mark, "record", "'ann'")
    )  # type: ignore[arg-type]
    return Remains((folder / DOING).read_bytes(), lacked_memory)


@pytest.mark.parametrize(
    ("code", "lacked_memory", "of_itself"),
    [
        (-signal.SIGSEGV, False, True),
        (-signal.SIGABRT, False, True),
        (-signal.SIGBUS, False, True),
        (0, False, True),
        (1, False, True),
        (3, False, True),
        (-signal.SIGKILL, True, True),
        (-signal.SIGKILL, False, False),
        (-signal.SIGTERM, True, False),
        (Exit.FENCED, False, False),
        (Exit.HUNG, False, False),
        (Exit.BAD_CONFIG, False, False),
    ],
)
def test_only_what_ended_of_itself_is_noted(
    notes: HangNotes, tmp_path: Path, code: int, lacked_memory: bool, of_itself: bool
) -> None:
    said: list[str] = []
    gone = WorkerExit(0, code, 1.0, CRASH, remains(tmp_path / "scratch", b"mark", lacked_memory))
    assert Deaths(notes, said.append).ended(gone) == of_itself
    found = list(map(decode_hang, notes.read("work").values()))
    assert [(hang.mark, hang.where, hang.records) for hang in found] == [
        (b"mark", "bad.py:7 in f", 500)
    ] * of_itself
    assert len(said) == of_itself


def test_a_death_between_two_bundles_is_no_news_and_one_of_many_records_gets_no_further(
    notes: HangNotes, tmp_path: Path
) -> None:
    said: list[str] = []
    deaths = Deaths(notes, said.append)
    assert not deaths.ended(WorkerExit(0, -signal.SIGSEGV, 1.0))
    assert not notes.read("work")
    assert not deaths.ended(
        WorkerExit(0, -signal.SIGSEGV, 1.0, CRASH, remains(tmp_path / "scratch", b""))
    )
    assert len(notes.read("work")) == 1
    assert said == []
