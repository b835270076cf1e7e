"""Segments are put together, and go with their groups."""

from __future__ import annotations

import polars as pl

from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state.windows import ColumnWindows
from millwheel.core.model.times import MAX_TIME
from tests.unit.core.columns.state.test_windows import Row, batch_of, plan_of


def test_segments_whose_windows_follow_each_other_are_merged_only_when_very_many() -> None:
    plan = plan_of()
    assert plan is not None
    windows = ColumnWindows(plan)
    for number in range(64):
        assert not windows.take_changes().gone
        windows.add(plan.group(batch_of([Row(1, "view", 0.5, 1, 10 * number)])))
    changes = windows.take_changes()
    assert (changes.gone, [segment.level for segment in changes.new]) == (list(range(63)), [1])
    for _ in range(7):
        windows.add(plan.group(batch_of([Row(1, "view", 0.5, 1, 5), Row(1, "view", 0.5, 1, 15)])))
    windows.add(plan.group(batch_of([Row(1, "view", 0.5, 1, 85)])))
    windows.take_changes()
    windows.add(plan.group(batch_of([Row(1, "view", 0.5, 1, 12)])))
    assert len(windows.take_changes().gone) == 7, (
        "those that have windows at its times, and not the one between"
    )
    closed = windows.close(MAX_TIME)
    assert closed is not None
    assert closed["count"].to_list() == [8, 9, 1, 1, 1, 1, 1, 1, 2, *[1] * 55]


def test_columnar_segments_are_put_together_and_go_with_their_windows() -> None:
    plan = plan_of()
    assert plan is not None
    windows = ColumnWindows(plan)
    stored: dict[int, tuple[int, pl.DataFrame]] = {}

    def keep() -> None:
        changes = windows.take_changes()
        for number in changes.gone:
            del stored[number]
        for segment in changes.new:
            stored[segment.number] = (segment.level, segment.groups)

    for i in range(100):
        windows.add(plan.group(batch_of([Row(i % 3, "view", 0.5, 1, i % 40)])))
        keep()
        assert len(stored) <= 4 * 2 * 8
    windows.close(20)
    keep()
    again = ColumnWindows(plan)
    for number, (level, groups) in sorted(stored.items()):
        again.restore(number, level, groups, 20)
    one, other = windows.close(MAX_TIME), again.close(MAX_TIME)
    assert one is not None
    assert other is not None
    order = [KEY, "start"]
    assert plan.results(one.sort(order)).equals(plan.results(other.sort(order)))
    keep()
    assert not stored
