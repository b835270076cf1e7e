"""Weak productions of a reading fail as the MillWheel paper says, and strong ones do not."""

from __future__ import annotations

import runpy
from pathlib import Path

outcomes = runpy.run_path(str(Path(__file__).with_name("show.py")))["outcomes"]


def test_weak_productions_leave_two_readings_behind_after_some_crashes() -> None:
    found = [(told, heard) for _, told, heard in outcomes("weak")]
    wrong = [(told, heard) for told, heard in found if told != heard]
    assert wrong, "X was noted, and Y, which is remembered, was dropped as a copy of it"
    assert all(told == heard + 1 for told, heard in wrong)
    assert len(wrong) < len(found)


def test_strong_productions_never_do() -> None:
    found = [(told, heard) for _, told, heard in outcomes("strong")]
    assert len(found) > 10
    assert all(told == heard for told, heard in found)
