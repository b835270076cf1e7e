"""Windows that stay after they have fired: when they fire, when they go, and what is due."""

from __future__ import annotations

import polars as pl

from millwheel.core.columns.state.late_windows import KeptColumns
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from tests.unit.core.columns.state.test_windows import Row, batch_of, plan_of


def windows_of(*stamps: int) -> KeptColumns:
    plan = plan_of()
    assert plan is not None
    windows = KeptColumns(plan, 15, MIN_TIME)
    for at in stamps:
        windows.add(plan.group(batch_of([Row(1, "view", 1.0, 1, at)])))
    return windows


def ends(groups: pl.DataFrame | None) -> list[int]:
    return [] if groups is None else groups["end"].to_list()


def test_a_window_fires_once_and_stays_until_no_record_is_allowed() -> None:
    windows = windows_of(3, 4, 13)
    assert (windows.fires_at(), windows.due_at()) == (9, 9)
    assert ends(windows.close(10)) == [10]
    assert ends(windows.fired()) == [10]
    assert ends(windows.all_groups()) == [20]
    assert (windows.fires_at(), windows.due_at()) == (19, 19)
    assert ends(windows.close(20)) == [20]
    assert ends(windows.fired()) == [10, 20]
    assert (windows.fires_at(), windows.due_at()) == (MAX_TIME, 24)
    assert ends(windows.close(25)) == []
    assert ends(windows.fired()) == [20]
    assert ends(windows.close(35)) == []
    assert not windows
    assert windows.due_at() == MAX_TIME


def test_what_has_fired_is_known_to_the_next_owner() -> None:
    windows = windows_of(3, 13)
    windows.close(10)
    again = windows_of()
    for segment in windows.take_changes().new:
        again.restore(segment.number, segment.level, segment.groups, 10)
    assert ends(again.close(20)) == [20]
    assert ends(again.fired()) == [10, 20]


def test_segments_of_a_shard_that_was_further_fire_nothing_again() -> None:
    windows = windows_of(3, 13)
    again = windows_of()
    for segment in windows.take_changes().new:
        again.restore(segment.number, segment.level, segment.groups, 5, fired=10)
    assert ends(again.close(12)) == []
    assert ends(again.fired(again.fired().select("key", "start", "end"))) == [10]  # type: ignore[union-attr]
    assert ends(again.close(20)) == [20]


def test_only_windows_of_late_groups_are_looked_for() -> None:
    windows = windows_of(3, 13, 23)
    windows.close(30)
    plan = plan_of()
    assert plan is not None
    late = plan.group(batch_of([Row(1, "view", 1.0, 1, 22), Row(2, "view", 1.0, 1, 22)]))
    on_time, behind = windows.on_time(late, 30)
    assert not on_time.height
    assert behind is not None
    assert ends(windows.fired(behind)) == [30]


def test_nothing_holds_the_end_of_time_once_all_has_fired() -> None:
    windows = windows_of(3)
    windows.close(MAX_TIME)
    assert not windows
    assert windows.fires_at() == MAX_TIME
