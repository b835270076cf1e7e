"""Whole records in columns: those that are chosen are the ones that rows keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.declared_fields import frame_of
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.work import AggregateSpec
from tests.unit.core.columns.state.test_windows import FIELDS, plan_of

RECORDS = st.lists(
    st.tuples(
        st.fixed_dictionaries(
            {
                "ad": st.integers(0, 2),
                "kind": st.sampled_from(["", "a", "b", "ä", "\U0001f40c", "\uffff"]),
                "cost": st.sampled_from([0.0, -0.0, 1.5, -2.5, 1e308]),
                "size": st.sampled_from([0, 1, 2, 2**63 - 1, -(2**63)]),
            }
        ),
        st.integers(0, 19),
    ),
    max_size=30,
)
KEPT = (
    AggregateSpec("largest", "max_by", options={"by": "size"}),
    AggregateSpec("least", "min_by", options={"by": ["cost", "kind"]}),
    AggregateSpec("first", "first_row"),
    AggregateSpec("last", "last_row", condition="size < 2"),
    AggregateSpec("best", "top_rows", options={"by": ["kind desc", "size", "cost desc"], "k": 3}),
    AggregateSpec("halves", "top_rows", options={"by": ["cost / 2 desc"], "k": 2}),
    AggregateSpec("n", "count"),
)


def plan(*aggregates: AggregateSpec) -> ColumnPlan:
    found = plan_of(aggregates=aggregates)
    assert found is not None
    return found


def batch_of(records: Sequence[tuple[dict[str, Any], int]]) -> ColumnBatch:
    frame = frame_of([value for value, _ in records], FIELDS)
    times = np.array([at for _, at in records], np.int64)
    return ColumnBatch("events", np.array([], np.int64), times, frame["ad"], frame)


def in_columns(own: ColumnPlan, records: Sequence[tuple[dict[str, Any], int]]) -> Any:
    batch = batch_of(records)
    groups = own.row_groups_of(own.group(batch), batch)
    return {(key, group.window.start): group.acc for key, group in groups}


@given(RECORDS)
def test_columns_have_the_accumulators_of_rows(records: list[tuple[dict[str, Any], int]]) -> None:
    rows = compile_aggregation(KEPT, compile_expression)
    groups = defaultdict(list)
    for value, at in records:
        value = {name: value[name] for name in FIELDS}
        groups[value["ad"], at // 10 * 10].append((rows.prepare(value), at))
    want = {
        group: rows.add_many(rows.create(), *map(list, zip(*own, strict=True)))
        for group, own in groups.items()
    }
    # as text, since -0.0 is not 0.0
    assert repr(sorted(in_columns(plan(*KEPT), records).items())) == repr(sorted(want.items()))


@pytest.mark.parametrize("cost", [None, float("nan"), float("inf")])
def test_a_bundle_with_a_value_that_has_no_place_is_looked_at_record_by_record(cost: Any) -> None:
    records = [({"ad": 1, "size": 1, "cost": each, "kind": "a"}, 0) for each in (1.0, cost)]
    with pytest.raises(Inexact):
        plan(KEPT[1]).group(batch_of(records))


def test_a_number_that_does_not_fit_is_found_though_its_record_is_not_chosen() -> None:
    records = [({"ad": 1, "size": size, "cost": 0.0, "kind": "a"}, 0) for size in (1, 2**62)]
    own = plan(AggregateSpec("least", "min_by", options={"by": "size * 3"}))
    with pytest.raises(Inexact):
        own.group(batch_of(records))


def test_a_record_that_a_condition_leaves_out_may_have_a_number_that_does_not_fit() -> None:
    records = [({"ad": 1, "size": size, "cost": 0.0, "kind": "a"}, 0) for size in (1, 2**62)]
    own = plan(
        AggregateSpec("least", "min_by", options={"by": "size * 3"}, condition="size < 1000")
    )
    assert in_columns(own, records) == {(1, 0): [[[[3], 0, records[0][0]]]]}


def test_only_the_first_records_and_those_level_with_the_last_become_rows() -> None:
    records = [({"ad": 1, "size": n // 3, "cost": 0.0, "kind": str(n)}, 0) for n in range(300)]
    own = plan(AggregateSpec("best", "top_rows", options={"by": ["size desc"], "k": 4}))
    groups = own.group(batch_of(records))
    [chosen] = groups["a0"].to_list()
    assert len(chosen) == 6
