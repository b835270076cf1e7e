"""Which computations run on columns, and how their groups are made."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Unfit
from millwheel.core.columns import plan as column_plans
from millwheel.core.columns.plan import KEY
from millwheel.core.pipeline.spec import (
    AggregateSpec,
    InputSpec,
    KeyKind,
    KeySpec,
    WindowSpec,
)
from tests.unit.core.columns.test_windows import SLIDING, TUMBLING, Row, batch_of, plan_of


def test_groups_are_in_the_order_in_which_they_come_so_that_the_same_records_give_the_same_bytes() -> None:
    plan = plan_of()
    assert plan is not None
    ads = [(number * 37) % 101 for number in range(101)]
    groups = plan.group(batch_of([Row(ad, "click", 1.0, 1, 5) for ad in ads] * 2))
    assert groups[KEY].to_list() == ads
    assert plan.merge([groups[50:], groups[:60]])[KEY].to_list() == ads[50:] + ads[:50]


@pytest.mark.parametrize(
    "changes",
    [
        {"output_time": "earliest"},
        {"trigger": {"repeat": {"after_bytes": 2}}},
        {"aggregates": (AggregateSpec("k", "collect", "cost"),)},
        {"aggregates": (AggregateSpec("s", "sum", "kind"),)},
        {"aggregates": (AggregateSpec("s", "sum", "cost ** 2"),)},
        {"aggregates": (AggregateSpec("s", "count", condition="size > 0.5"),)},
        {"inputs": (InputSpec("events", KeySpec(KeyKind.FIELDS, ("ad", "cost"))),)},
        {"inputs": (InputSpec("others", KeySpec(KeyKind.FIELD, ("ad",))),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_has_no_column_form_stays_in_rows(changes: dict[str, Any]) -> None:
    assert plan_of(**changes) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"trigger": {"repeat": {"after_count": 2}}},
        {"trigger": "after_watermark", "allowed_lateness_us": 5},
        {"window": WindowSpec("count", {"count": 3})},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_windows_that_fire_again_or_keep_more_than_columns_hold_take_groups(changes: dict[str, Any]) -> None:
    plan = plan_of(**changes)
    assert plan is not None
    assert not plan.fires_once


@pytest.mark.parametrize(
    "changes",
    [
        {"accumulation": "retracting"},
        {"allowed_lateness_us": 5},
        {"late": "side:too_late"},
        {"late": "refire"},
        {"trigger": "after_watermark"},
        {"trigger": {"after_watermark": {"late": {"after_count": 2}}}, "allowed_lateness_us": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize("window", [WindowSpec("tumbling", {"size_us": 10}), SLIDING], ids=["tumbling", "sliding"])
def test_columns_hold_windows_that_fire_again_for_late_records_alone(
    changes: dict[str, Any], window: WindowSpec
) -> None:
    plan = plan_of(window, **changes)
    assert plan is not None
    assert plan.fires_once
    assert plan.combines == (window is not SLIDING and "late" not in changes)


def test_other_windows_stay_in_rows() -> None:
    session = WindowSpec("session", {"gap_us": 5})
    assert plan_of(session, trigger={"repeat": {"after_count": 2}}) is None
    assert plan_of(session, allowed_lateness_us=5) is None
    assert plan_of(WindowSpec("count", {"count": 3}), output_time="earliest") is None


@pytest.mark.parametrize(
    "window",
    [
        WindowSpec("session", {"gap_us": 5}),
        WindowSpec("sliding", {"size_us": 9, "every_us": 3, "changes": True}),
    ],
    ids=["sessions", "key windows"],
)
def test_columns_hold_sessions_and_key_windows_of_plain_aggregates(window: WindowSpec) -> None:
    ways: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"late": "side:too_late"}, True),
        ({"queryable": "latest"}, False),
        ({"aggregates": (AggregateSpec("k", "approx_count_distinct", "cost"),)}, window.kind == "session"),
    ]
    for changes, held in ways:
        plan = plan_of(window, **changes)
        assert plan is not None
        assert plan.fires_once == held
        assert not plan.combines


FAR = st.sampled_from([0, 1, 7, -5, 2**40, -(2**63), 2**63 - 1])


@given(
    st.lists(st.builds(Row, FAR, st.just("click"), st.just(0.5), st.integers(0, 9), st.integers(0, 60)), max_size=30)
)
@pytest.mark.parametrize("window", [TUMBLING, SLIDING])
def test_one_number_for_each_window_groups_as_key_start_and_end_do(window: WindowSpec, made: list[Row]) -> None:
    plan = plan_of(window)
    assert plan is not None
    batch = batch_of(made)
    found = plan.group(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_plans, "_group", lambda frame: None)
        by_three = plan.group(batch)
    assert found.equals(by_three)


def test_windows_that_begin_together_and_end_apart_stay_apart() -> None:
    plan = plan_of()
    assert plan is not None
    groups = plan.group(batch_of([Row(1, "click", 0.5, 1, 3), Row(1, "click", 0.5, 1, 4)]))
    longer = groups.with_columns(pl.col("end") + 10)
    assert plan.merge([groups, longer, groups])["end"].to_list() == [10, 20]


def test_only_records_that_count_are_checked_and_there_may_be_none() -> None:
    shares = (AggregateSpec("share", "sum", "cost / size"),)
    plan = plan_of(aggregates=shares, condition="size > 0")
    assert plan is not None
    none, one = Row(1, "click", 1.0, 0, 5), Row(1, "click", 1.0, 2, 5)
    assert plan.results(plan.group(batch_of([none, one])))["share"].to_list() == [0.5]
    assert plan.group(batch_of([none])).height == 0
    every = plan_of(aggregates=shares)
    assert every is not None
    with pytest.raises(Unfit):
        every.group(batch_of([none, one]))
