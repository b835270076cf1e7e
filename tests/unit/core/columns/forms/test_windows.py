"""Which windows run on columns, and which of them columns hold until they fire."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from tests.unit.core.columns.state.test_windows import SLIDING, plan_of


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
def test_windows_that_fire_again_or_keep_more_than_columns_hold_take_groups(
    changes: dict[str, Any],
) -> None:
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
@pytest.mark.parametrize(
    "window", [WindowSpec("tumbling", {"size_us": 10}), SLIDING], ids=["tumbling", "sliding"]
)
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
        (
            {"aggregates": (AggregateSpec("k", "approx_count_distinct", "cost"),)},
            window.kind == "session",
        ),
    ]
    for changes, held in ways:
        plan = plan_of(window, **changes)
        assert plan is not None
        assert plan.fires_once == held
        assert not plan.combines
