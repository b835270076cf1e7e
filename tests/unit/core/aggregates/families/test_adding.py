"""What NumPy adds up is what a hash table adds up, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.families.adding import Cells, Unadded, cells
from millwheel.core.aggregates.families.exact_sums import SCALE_BITS
from millwheel.core.columns import plan as column_plans
from millwheel.core.columns.batch import key_column
from millwheel.core.columns.groups_frame import COUNT, END, KEY, START
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.windows.windows import Tumbling
from tests.unit.core.columns.state.test_windows import TUMBLING, Row, batch_of, plan_of

SUMS = (
    AggregateSpec("n", "count"),
    AggregateSpec("clicks", "count", condition="kind == 'click' and not cost > 2"),
    AggregateSpec("spend", "sum", "cost"),
    AggregateSpec("click_spend", "sum", "cost", condition="kind == 'click' or size >= 3"),
    AggregateSpec("bytes", "sum", "size"),
    AggregateSpec("average", "mean", "cost - size", condition="kind != 'click'"),
)
PAIRS = (InputSpec("events", KeySpec(KeyKind.FIELDS, ("ad", "size"))),)
costs = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 2.0**-37, -3.7, 1e6]),
    st.floats(-1e6, 1e6).filter(lambda x: abs(x) >= 2.0**-37 or x == 0),
)
rows = st.builds(
    Row,
    st.integers(-3, 3),
    st.sampled_from(["click", "view"]),
    costs,
    st.integers(-5, 5),
    st.integers(-30, 60),
)


def totals(groups: pl.DataFrame) -> dict[Any, Any]:
    """The groups by key and window, with whole parts and fractions of floats in one number."""
    found = {}
    for row in groups.iter_rows(named=True):
        sums = {name: value for name, value in row.items() if name not in (KEY, START, END)}
        for name in [name for name in sums if f"{name}f" in sums]:
            sums[name] = (sums[name] << SCALE_BITS) + sums.pop(f"{name}f")
        found[str(row[KEY]), row[START], row[END]] = sums
    return found


def by_hash(plan: ColumnPlan, batch: Any, monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    with monkeypatch.context() as patched:
        patched.setattr(column_plans, "cells", lambda *_: None)
        return plan.group(batch)


@pytest.mark.parametrize(
    "changes", [{}, {"inputs": PAIRS}, {"condition": "size > 0 or kind == 'view'"}], ids=str
)
@given(records=st.lists(rows, max_size=40))
def test_groups_are_those_of_a_hash_table(records: list[Row], changes: dict[str, Any]) -> None:
    plan = plan_of(aggregates=SUMS, **changes)
    assert plan is not None
    batch = batch_of(records)
    if changes.get("inputs"):
        batch = pair_keys(batch)
    groups = plan.group(batch)
    with pytest.MonkeyPatch.context() as patched:
        expected = by_hash(plan, batch, patched)
    assert groups.schema == expected.schema
    assert totals(groups) == totals(expected)


def pair_keys(batch: Any) -> Any:
    return replace(batch, keys=key_column([batch.frame["ad"], batch.frame["size"]]))


def test_groups_are_in_the_order_of_windows_and_keys() -> None:
    plan = plan_of(aggregates=SUMS)
    assert plan is not None
    groups = plan.group(
        batch_of([Row(ad, "click", 1.0, 1, at) for ad in (5, -2, 3) for at in (-1, 12, 0, 5)])
    )
    assert groups.select(START, KEY).rows() == [
        (at, ad) for at in (-10, 0, 10) for ad in (-2, 3, 5)
    ]
    assert groups[COUNT].to_list() == [1, 1, 1, 2, 2, 2, 1, 1, 1]


@given(st.lists(costs, min_size=1), st.integers(1, 3))
def test_sums_of_floats_are_exact(values: list[float], groups: int) -> None:
    numbers = np.arange(len(values)) % groups
    whole, fraction = Cells(numbers, [], np.zeros(groups, np.int64)).floats(np.array(values))
    expected = [sum(map(Fraction, values[group::groups]), Fraction(0)) for group in range(groups)]
    found = [
        Fraction(one) + Fraction(other, 1 << SCALE_BITS)
        for one, other in zip(whole, fraction, strict=True)
    ]
    assert found == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_sums_of_whole_numbers_are_exact(values: list[int]) -> None:
    found = Cells(np.zeros(len(values), np.intp), [], np.zeros(1, np.int64)).wholes(
        np.array(values, np.int64)
    )
    assert found.to_list() == [sum(values)]


def test_floats_whose_sum_would_be_rounded_are_left_to_the_hash_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(Unadded):
        Cells(np.zeros(2, np.intp), [], np.zeros(1, np.int64)).floats(np.array([1.0, -(2.0**31)]))
    plan = plan_of(aggregates=SUMS)
    assert plan is not None
    batch = batch_of([Row(1, "view", 2.0**40 + 0.25, 1, 5), Row(1, "view", 0.1, 1, 5)])
    assert plan.group(batch).equals(by_hash(plan, batch, monkeypatch))


@pytest.mark.parametrize(
    ("keys", "stamps", "window"),
    [
        ([], [], Tumbling(10)),
        (["a"], [5], Tumbling(10)),
        ([0, 10**6], [5, 5], Tumbling(10)),
        ([-(2**63), 2**63 - 1], [5, 5], Tumbling(10)),
        ([0, 0], [0, 10**9], Tumbling(10)),
        ([0], [5], Tumbling(86_400_000_000, time_zone="Europe/Berlin")),
        ([0], [MAX_TIME - 5], Tumbling(10)),
    ],
    ids=[
        "nothing",
        "text",
        "keys far apart",
        "all keys",
        "times far apart",
        "days of a time zone",
        "the end of time",
    ],
)
def test_what_does_not_lie_close_together_is_left_to_the_hash_table(
    keys: list[Any], stamps: list[int], window: Tumbling
) -> None:
    series = pl.Series(keys, dtype=pl.String if keys == ["a"] else pl.Int64)
    assert cells([series], np.array(stamps, np.int64), window) is None


def test_other_aggregates_and_windows_are_left_to_the_hash_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(column_plans, "cells", None)
    record = batch_of([Row(1, "view", 1.0, 1, 5)])
    for plan in (plan_of(), plan_of(TUMBLING, aggregates=(AggregateSpec("s", "stddev", "cost"),))):
        assert plan is not None
        assert plan.group(record).height == 1
