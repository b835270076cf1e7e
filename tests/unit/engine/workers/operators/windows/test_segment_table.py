"""What a shard holds in columns is found again in its store, and what it holds in rows is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millwheel.core.aggregates.columns import Unfit
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.columns.batch import AnyBatch
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.store_layout import WINDOW, key_prefix, pack
from millwheel.core.model.keys import key_hash
from millwheel.core.model.names import ChannelName
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.windows.calls import Group
from millwheel.core.windows.windows import Window
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.windows.segment_table import (
    HeldColumns,
    KeysInRows,
    odd_groups,
    odd_keys,
)
from millwheel.engine.workers.state.column_segments import ColumnShard
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore
from tests.unit.core.columns.state.test_windows import Row, batch_of, plan_of, spec_of

COUNT = (AggregateSpec("n", "count"),)
ROWS = [
    Row(1, "click", 0.5, 1, 3),
    Row(1, "view", 0.5, 1, 12),
    Row(2, "click", 0.5, 1, 4),
    Row(1, "click", 2.0, 1, 5),
]
AGGREGATION = compile_aggregation(COUNT, compile_expression)


def held_in(store: SimStore, closed: int = MIN_TIME, **changes: Any) -> HeldColumns:
    spec, _ = spec_of(aggregates=COUNT, **changes)
    plan = plan_of(aggregates=COUNT, **changes)
    assert plan is not None
    return HeldColumns(spec, plan, ColumnShard("c-0", store, closed))


def written() -> SimStore:
    """A store with the windows of :data:`ROWS`."""
    store = SimStore({})
    held, overlay = held_in(store), Overlay(store)
    held.windows.add(held.plan.group(batch_of(ROWS)))
    held.write(overlay)
    store.apply(*overlay.take())
    return store


def in_rows(*windows: tuple[int, int, int]) -> SimStore:
    """A store with windows in rows: their keys and bounds."""
    entries = (
        key_prefix(WINDOW, key, key_hash(key)) + pack([start, end]) for key, start, end in windows
    )
    return SimStore(dict.fromkeys(entries, b""))


def test_the_next_owner_finds_written_windows_except_those_that_have_fired() -> None:
    store = written()
    assert set(held_in(store).open_windows(1)) == {Window(0, 10), Window(10, 20)}
    assert held_in(store).open_windows(3) == []
    assert held_in(store, closed=10).open_windows(1) == [Window(10, 20)]
    assert held_in(store, closed=10).open_windows(2) == []


def test_the_store_answers_what_the_windows_answer() -> None:
    store = written()
    held = held_in(store)
    found = held.results(1, AGGREGATION, MIN_TIME)
    assert sorted(window for window, _ in found) == [Window(0, 10), Window(10, 20)]
    assert sorted(map(repr, found)) == sorted(
        map(repr, held.stored_results(store, 1, AGGREGATION, MIN_TIME))
    )
    assert [window for window, _ in held.stored_results(store, 1, AGGREGATION, 10)] == [
        Window(10, 20)
    ]


def test_keys_in_rows_are_told_apart_only_beside_others_in_columns() -> None:
    alone = in_rows((7, 0, 10))
    assert len(held_in(alone).keys_apart()) == 0
    beside = SimStore(written().data | alone.data)
    assert 7 in held_in(beside).keys_apart()
    assert 1 not in held_in(beside).keys_apart()


def test_rows_that_stay_for_late_records_do_not_count_once_they_have_fired() -> None:
    late = {"allowed_lateness_us": 100}
    assert not held_in(SimStore({})).has_rows(0)
    assert held_in(in_rows((7, 0, 10))).has_rows(50)
    held = held_in(in_rows((7, 0, 10), (8, 10, 20)), **late)
    assert [held.has_rows(watermark) for watermark in (5, 10, 19, 20)] == [True, True, True, False]


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
    with pytest.raises(Unfit):
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
