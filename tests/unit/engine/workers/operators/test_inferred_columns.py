"""Shards of a computation whose input declares no fields: what came of other types sends them on in
rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.forms.windows import plans_by_type
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.specs import windowing_from_spec
from millwheel.core.model.names import ChannelName, NodeName
from millwheel.core.model.ranges import KeyRange
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.windows.windows import Window
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.combining import ConsumerGroups
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.operators.windows.grouping import GroupedOperator
from millwheel.engine.workers.state.column_segments import (
    ColumnShard,
    segment_entry,
    segments_within,
)
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore
from tests.unit.core.columns.state.test_windows import Row, batch_of, spec_of


def undeclared(
    store: dict[bytes, bytes], aggregates: tuple[AggregateSpec, ...]
) -> tuple[ColumnOperator, Overlay]:
    """The operator of a shard of a computation whose input declares no fields."""
    spec, given_pipeline = spec_of(aggregates=aggregates)
    plans = plans_by_type(spec, windowing_from_spec(spec), compile_expression)
    assert isinstance(plans, PlansByType)
    overlay = Overlay(SimStore(store))
    rows = GroupedOperator(spec, given_pipeline, plans, overlay, lambda stream, values: values, 100)
    shard = ColumnShard("shard", SimStore(store), 0)
    return ColumnOperator(spec, plans, shard, rows, lambda stream, values: values), overlay


def run_bundle(
    operator: ColumnOperator, overlay: Overlay, batch: ColumnBatch | None, watermark: int
) -> Bundle:
    timers = {domain: TimerQueue(domain) for domain in Domain}
    arrivals = [Arrival(ChannelName("c"), 1, 0, batch, None, 0)] if batch is not None else []
    bundle = Bundle(1, 0, watermark, arrivals, overlay, timers)
    operator.run(bundle)
    return bundle


def test_shards_that_met_different_types_go_on_in_rows_when_they_are_merged() -> None:
    aggregates = (AggregateSpec("spend", "sum", "cost"), AggregateSpec("most", "max", "cost"))
    merged: dict[bytes, bytes] = {}
    for number, (ad, dtype) in enumerate([(1, pl.Int64), (2, pl.Float64)]):
        store: dict[bytes, bytes] = {}
        operator, overlay = undeclared(store, aggregates)
        batch = batch_of([Row(ad, "click", 2.0, 1, 5), Row(ad, "click", 3.0, 1, 6)])
        run_bundle(
            operator,
            overlay,
            replace(batch, frame=batch.frame.with_columns(pl.col("cost").cast(dtype))),
            0,
        )
        store.update(overlay.take()[0])
        [segment] = segments_within(SimStore(store), KeyRange(0, 2**64), 0)
        assert dict(segment.types) == {"ad": "int", "cost": "int" if dtype == pl.Int64 else "float"}
        merged.update([segment_entry("shard", number, segment)])
    operator, overlay = undeclared(merged, aggregates)
    assert operator.wakes_at(0) == 0
    assert operator.due_at() == 9
    run_bundle(operator, overlay, None, 0)
    assert not operator._held.windows
    assert operator.open_windows(1) == operator.open_windows(2) == [Window(0, 10)]


def groups_in_columns(operator: ColumnOperator, batch: ColumnBatch) -> ColumnBatch:
    """What a source makes of records for this computation."""
    assert operator._held.by_type is not None
    plan = operator._held.by_type.of(batch)
    assert plan is not None
    found = ConsumerGroups(operator._held.by_type, None).groups(
        NodeName(operator._spec.name), batch
    )
    assert isinstance(found, ColumnBatch)
    return found


@pytest.mark.parametrize("combined", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(
    "dtypes", [(pl.Int64, pl.Float64), (pl.Float64, pl.Int64), (pl.Float64, pl.Float64)]
)
def test_groups_of_other_types_than_the_open_windows_go_on_in_rows(
    dtypes: tuple[Any, Any], combined: tuple[bool, bool]
) -> None:
    aggregates = (AggregateSpec("spend", "sum", "cost"), AggregateSpec("most", "max", "cost"))
    operator, overlay = undeclared({}, aggregates)
    for dtype, grouped in zip(dtypes, combined, strict=True):
        batch = batch_of([Row(1, "click", 2.0, 1, 5), Row(2, "click", 3.0, 1, 6)])
        batch = replace(batch, frame=batch.frame.with_columns(pl.col("cost").cast(dtype)))
        run_bundle(operator, overlay, groups_in_columns(operator, batch) if grouped else batch, 0)
    assert operator._in_rows == (dtypes[0] != dtypes[1])
    if not operator._in_rows:
        assert dict(operator._held.windows.types)["cost"] == "float"
        return
    overlay.take()
    answered = [operator._rows._cells.load(key, Window(0, 10)) for key in (1, 2)]
    assert all(answered), "each window is in rows"
