"""Keys in rows are told from those in columns, and keys that columns cannot hold are found."""

from __future__ import annotations

import numpy as np
import pytest

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.model.names import ChannelName
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.windows.calls import Group
from millwheel.core.windows.windows import Window
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.windows.row_keys import KeysInRows, odd_groups, odd_keys
from tests.unit.core.columns.state.test_windows import Row, batch_of, plan_of

COUNT = (AggregateSpec("n", "count"),)
SUM = (AggregateSpec("spend", "sum", "cost"),)
ODD = 1e-13  # finer than sums in columns are


def records(*keys: int, odd: int | None = None) -> list[Row]:
    """One record of each key; that of ``odd`` has a value that no column can hold."""
    return [Row(key, "click", ODD if key == odd else 1.5, 1, 0) for key in keys]


def arrival(index: int, batch: AnyBatch) -> Arrival:
    return Arrival(ChannelName("c"), 1, index, batch, None, 0)


def test_arrivals_are_divided_by_key_in_columns_as_in_rows() -> None:
    found = KeysInRows()
    found.add([1, 3])
    columns = batch_of(records(0, 1, 2, 3))
    batches: list[AnyBatch] = [
        columns,
        columns.rows(),
        batch_of(records(1)),
        batch_of(records(2)),
        columns.part(0, 0),
    ]
    others, mine = found.divide(arrival(index, batch) for index, batch in enumerate(batches))
    assert [(each.index, list(each.batch.keys)) for each in others] == [
        (0, [0, 2]),
        (1, [0, 2]),
        (3, [2]),
    ]
    assert [(each.index, list(each.batch.keys)) for each in mine] == [
        (0, [1, 3]),
        (1, [1, 3]),
        (2, [1]),
    ]


def test_keys_that_come_or_go_later_are_seen_in_columns_too() -> None:
    found, keys = KeysInRows(), batch_of(records(0, 1, 2)).keys
    seen = [found.among(keys).tolist()]
    found.add([2])
    seen.append(found.among(keys).tolist())
    assert (2 in found, len(found)) == (True, 1)
    found.clear()
    seen.append(found.among(keys).tolist())
    assert seen == [[False] * 3, [False, False, True], [False] * 3]


def test_groups_are_divided_by_key() -> None:
    plan = plan_of(aggregates=COUNT)
    assert plan is not None
    found = KeysInRows()
    found.add([1])
    others, mine = found.divide_groups(plan.group(batch_of(records(0, 1, 2))))
    assert (sorted(others[KEY]), sorted(mine[KEY])) == ([0, 2], [1])


def test_among_many_records_the_odd_key_is_found_with_few_others() -> None:
    plan = plan_of(aggregates=SUM)
    assert plan is not None
    batch = batch_of(records(*range(1_000), odd=700))
    with pytest.raises(Inexact):
        plan.group(batch)
    found = odd_keys(batch, plan)
    assert 700 in found
    assert len(found) <= 64
    assert odd_keys(batch.where(np.arange(1_000) != 700), plan) == set()
    assert odd_keys(batch.part(0, 3).rows(), plan) == {0, 1, 2}


def test_among_many_groups_in_rows_the_odd_key_is_found_with_few_others() -> None:
    plan = plan_of(aggregates=COUNT)
    assert plan is not None
    groups = list(plan.row_groups(plan.group(batch_of(records(*range(1_000))))))
    assert odd_groups(groups, plan) == set()
    assert odd_groups([], plan) == set()
    key, group = groups[700]
    groups[700] = key, Group(Window(0, 2**63), group.acc, group.count, None, None)
    found = odd_groups(groups, plan)
    assert key in found
    assert len(found) <= 64
