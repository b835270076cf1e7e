"""Key windows in columns: ranges of points, and shards that have emitted less than others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state.steps import StepColumns, _lowest, entered
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from tests.unit.core.columns.state.test_windows import CHANGES, Row, batch_of, plan_of, rows


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30), st.integers(0, 9)), max_size=20))
def test_the_lowest_over_ranges_is_that_of_each_point(found: list[tuple[int, int, int]]) -> None:
    first, sizes, numbers = (
        np.array([each[part] for each in found], np.int64) for part in range(3)
    )
    none = np.iinfo(np.int64).max
    expected = [
        min(
            (number for start, size, number in found if start <= point < start + size), default=none
        )
        for point in range(61)
    ]
    assert _lowest(numbers, first, first + sizes, 61).tolist() == expected


def steps(windows: StepColumns, watermark: int) -> list[Any]:
    found = windows.close(watermark)
    return [] if found is None else sorted(found.select(KEY, "end", "count").rows())


@given(st.lists(rows, max_size=12), st.integers(-30, 60), st.integers(-30, 60))
@settings(deadline=None)
def test_what_has_entered_counts_the_same_for_an_owner_that_has_emitted_less(
    made: list[Row], one: int, other: int
) -> None:
    plan = plan_of(CHANGES)
    assert plan is not None
    assert plan.steps is not None
    behind, ahead = sorted((one, other))
    windows = StepColumns(plan, plan.steps, MIN_TIME)
    windows.add(windows.entering(plan.group(batch_of(made)), MIN_TIME))
    windows.close(ahead)
    successor = StepColumns(plan, plan.steps, behind)
    if windows:
        successor.restore(0, 0, entered(windows.all_groups(), ahead), ahead)
    assert steps(successor, ahead) == []
    assert steps(successor, MAX_TIME) == steps(windows, MAX_TIME)


def test_points_that_no_column_can_hold_are_unfit() -> None:
    plan = plan_of(CHANGES)
    assert plan is not None
    assert plan.steps is not None
    windows = StepColumns(plan, plan.steps, MIN_TIME)
    with pytest.raises(Inexact):
        windows.entering(plan.group(batch_of([Row(1, "view", 0.5, 1, 2**62 + 1)])), MIN_TIME)
    assert windows.entering(plan.group(batch_of([Row(1, "view", 0.5, 1, 4)])), MIN_TIME).height == 1


def test_a_record_behind_the_watermark_enters_at_the_next_point() -> None:
    plan = plan_of(CHANGES)
    assert plan is not None
    assert plan.steps is not None
    windows = StepColumns(plan, plan.steps, 10)
    groups = windows.entering(plan.group(batch_of([Row(1, "view", 0.5, 1, 4)])), 10)
    assert groups.select("start", "end").rows() == [(12, 15)]
    windows.add(groups)
    assert steps(windows, 15) == [(1, 12, 1), (1, 15, 0)]
