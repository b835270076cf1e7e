"""Groupings on unequal workers: the share of the slow one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bench.unequal import Slowed, Work, seen_later, share_of


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


def test_the_second_half_is_told_apart_by_when_records_were_added() -> None:
    slow = np.array([[0, 10], [10, 20], [20, 130]])
    fast = np.array([[0, 10], [30, 40], [40, 50]])
    share, lags = seen_later({7: slow.ravel(), 8: fast.ravel()}, slow=7)
    assert share == 1 / 3  # 130 of those added at 30 and later: 130, 40, 50
    assert sorted(lags.tolist()) == [0, 0, 100]


def test_the_results_of_a_steady_input_are_those_of_all_its_records(tmp_path: Path) -> None:
    work = Work(tmp_path, 4_000, "1.1", 8, 2, 300, 400)
    right = work.right()
    assert sum(count for _, _, count, _ in right) == 4_000
    assert {start for _, start, _, _ in right} == {0}
    assert "rate: 400, count: 4000, partitions: 4" in work.text("tag")
    assert "skew: tag(8)" in work.text("tag")
