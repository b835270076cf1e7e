"""Groupings on unequal workers: the share of the slow one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from bench.unequal import Seen, Slowed, Work, picture, seen_later, share_of


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


def test_the_picture_has_both_workers_of_each_run_on_one_scale() -> None:
    def run(slow: range, others: range) -> Seen:
        return Seen(1.0, 0.2, 0.2, np.empty(0), np.array(slow) * 1000, np.array(others) * 1000)

    drawn = picture(
        {"hash": run(range(0, 4001, 4), range(1001)), "tag": run(range(0, 2001, 10), range(2001))}
    )
    lines = [
        re.findall(r"[\d.]+,[\d.]+", line)
        for line in re.findall(r'<polyline points="([^"]*)"', drawn)
    ]
    ends = [float(points[-1].split(",")[0]) - float(points[0].split(",")[0]) for points in lines]
    assert ends == [300, 300, 150, 150]  # tag took half of the time
    heights = [184 - float(points[0].split(",")[1]) for points in lines[:2]]
    assert heights == pytest.approx([25, 100], rel=0.05)  # 250 and 1,000 records/s of 1,500
    assert "slow worker" in drawn
    assert ">4 s<" in drawn
