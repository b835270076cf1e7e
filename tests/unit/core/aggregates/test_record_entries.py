"""Whole records that columns hold: after any bundles they are the ones that rows keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.expressions.language import compile_expression
from millwheel.core.lazy_polars import pl
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.windows.calls import Group
from millwheel.core.windows.windows import Forever, Window
from tests.unit.core.aggregates.test_candidates import KEPT, RECORDS, batch_of, plan
from tests.unit.core.columns.state.test_windows import FIELDS

RANKED = AggregateSpec(
    "ranked", "top_rows", options={"by": ["size desc", "kind"], "k": 2, "rank": "place"}
)
Records = list[tuple[dict[str, Any], int]]


def held(*aggregates: AggregateSpec, most: int = 0) -> ColumnPlan:
    made = plan(*aggregates)
    return replace(made, window=Forever(), fires_once=False, versions=True, most=most)


def in_rows(aggregates: Sequence[AggregateSpec], records: Records) -> tuple[Any, Any]:
    """The accumulators and the results of the row form."""
    rows = compile_aggregation(aggregates, compile_expression)
    groups = defaultdict(list)
    for value, at in records:
        value = {name: value[name] for name in FIELDS}
        groups[value["ad"]].append((rows.prepare(value), at))
    accs = {
        key: rows.add_many(rows.create(), *map(list, zip(*own, strict=True)))
        for key, own in groups.items()
    }
    return accs, {key: rows.result(acc) for key, acc in accs.items()}


def in_columns(own: ColumnPlan, bundles: Sequence[Records]) -> pl.DataFrame:
    groups = [own.group(batch_of(bundle)) for bundle in bundles if bundle]
    whole = groups[0]
    for each in groups[1:]:
        whole = own.merge([whole, each])
    return whole


@given(st.lists(RECORDS, min_size=1, max_size=5).filter(any))
def test_columns_hold_the_records_that_rows_keep(bundles: list[Records]) -> None:
    aggregates = (*KEPT, RANKED)
    own = held(*aggregates)
    groups = in_columns(own, bundles)
    accs, results = in_rows(aggregates, [each for bundle in bundles for each in bundle])
    found = {key: group.acc for key, group in own.row_groups(groups)}
    # as text, since -0.0 is not 0.0
    assert repr(sorted(found.items())) == repr(sorted(accs.items()))
    shown = own.results(groups).with_columns(groups[KEY].alias("key")).to_dicts()
    assert {row.pop("key"): repr(row | {"ad": 0}) for row in shown} == {
        key: repr({"ad": 0} | row) for key, row in results.items()
    }
    assert own.from_row_groups(list(own.row_groups(groups)), groups).equals(groups)


def of_acc(acc: Any) -> list[tuple[Any, Group]]:
    return [(1, Group(Window(0, 1), acc, 1, 0, 0))]


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ([1], {"size": 1, "more": 2**70}),
        ([1.0], {"size": 1.0}),
        ([1], {"size": 1, "what": {1: 2}}),
        ([1], {"size": 1, "what": [1, "a"]}),
        ([1], {"size": 1, "what": None}),
        ([1], [1]),
        ([True], {"size": True}),
    ],
)
def test_records_that_no_column_has_as_they_are_stay_in_rows(values: Any, row: Any) -> None:
    own = held(AggregateSpec("least", "min_by", options={"by": "size"}))
    with pytest.raises(Inexact):
        own.from_row_groups(of_acc([[[values, 0, row]]]))


def test_records_get_the_types_that_are_held() -> None:
    own = held(AggregateSpec("least", "min_by", options={"by": "size"}))
    like = own.from_row_groups(of_acc([[[[1], 0, {"size": 1, "what": "a"}]]]))
    there = own.from_row_groups(of_acc([[[[0], 0, {"size": 0, "what": None}]]]), like)
    assert own.merge([like, there])["a0"].to_list() == [
        [{"o0": 0, "at": 0, "row": {"size": 0, "what": None}}]
    ]
    assert own.from_row_groups(of_acc([[]]), like)["a0"].to_list() == [[]]
    for row in ({"size": 1, "what": 1}, {"what": "a", "size": 1}, {"size": 1}):
        with pytest.raises(Inexact):
            own.from_row_groups(of_acc([[[[1], 0, row]]]), like)
    other = own.from_row_groups(of_acc([[[[1], 0, {"size": 1}]]]))
    with pytest.raises(Inexact):
        own.merge([like, other])
    with pytest.raises(Inexact):
        own.from_row_groups(of_acc([[]]))


def test_what_may_be_too_large_for_rows_stays_there() -> None:
    best = AggregateSpec("best", "top_rows", options={"by": ["size"], "k": 3})
    records = [({"ad": 1, "size": n, "cost": 0.5, "kind": "a" * 200}, 0) for n in range(5)]
    assert held(best, most=4_000).group(batch_of(records)).height == 1
    with pytest.raises(Inexact):
        held(best, most=600).group(batch_of(records))
    nested = pl.DataFrame(
        {"size": [1], "what": [{"names": ["a" * 300]}]},
        schema_overrides={"what": pl.Struct({"names": pl.List(pl.String)})},
    )
    times = np.array([0], np.int64)
    batch = ColumnBatch("events", times[:0], times, pl.Series("ad", [1]), nested)
    assert held(best, most=4_000).group(batch).height == 1
    with pytest.raises(Inexact):
        held(best, most=900).group(batch)
