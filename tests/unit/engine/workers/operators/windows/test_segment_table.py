"""What a shard holds in columns is found again in its store, and what it holds in rows is known."""

from __future__ import annotations

from typing import Any

from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.store_layout import WINDOW, key_prefix, pack
from millwheel.core.model.keys import key_hash
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.windows.windows import Window
from millwheel.engine.workers.operators.windows.segment_table import SegmentTable
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


def held_in(store: SimStore, closed: int = MIN_TIME, **changes: Any) -> SegmentTable:
    spec, _ = spec_of(aggregates=COUNT, **changes)
    plan = plan_of(aggregates=COUNT, **changes)
    assert plan is not None
    return SegmentTable(spec, plan, ColumnShard("c-0", store, closed))


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
