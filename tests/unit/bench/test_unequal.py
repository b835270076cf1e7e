"""Groupings on unequal workers: the share of the slow one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.unequal import Slowed, share_of


def test_the_share_is_that_of_all_records_that_were_added() -> None:
    assert share_of(7, {7: 100, 8: 300}) == 0.25


def test_a_run_in_which_nobody_was_slowed_says_nothing() -> None:
    with pytest.raises(SystemExit, match="no worker was slowed"):
        share_of(0, {8: 300})


def test_nobody_is_stopped_before_a_worker_has_added_records(tmp_path: Path) -> None:
    (tmp_path / str(os.getpid())).write_text("100")
    slowed = Slowed(tmp_path)
    slowed.start()
    slowed.end()
    assert slowed.pid == 0
