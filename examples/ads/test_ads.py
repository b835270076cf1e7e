"""The ads pipeline in memory: what is billed, what is counted, and that a crash changes neither."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millwheel.testing import PipelineHarness, assert_survives_crashes

PIPELINE = Path(__file__).with_name("pipeline.yaml")
MINUTE_US = 60_000_000


def event(
    number: int, kind: str, second: float = 0, cost: float = 0.0, client: int = 7, ad: int = 1
) -> dict[str, Any]:
    return {
        "event_id": f"e{number}", "ad_id": ad, "client_id": client, "uid": 1, "type": kind,
        "cost": cost,
        "ts": round(second * 1000),
    }  # fmt: skip


@pytest.fixture
def ads() -> Iterator[PipelineHarness]:
    with PipelineHarness(PIPELINE, params={"budget": 2}) as harness:
        yield harness


def test_a_client_is_reported_once_when_its_budget_is_spent(ads: PipelineHarness) -> None:
    ads.push("events", [event(n, "click", n, cost=0.9) for n in range(4)])
    assert ads.take("over_budget") == [{"client_id": 7, "spent_micros": 2_700_000, "clicks": 3}]
    account = ads.state("billing", 7)["account"]
    assert (account.spent, account.clicks, account.reported) == (3_600_000, 4, True)


def test_impressions_cost_nothing_and_copies_count_once(ads: PipelineHarness) -> None:
    ads.push(
        "events",
        [
            event(1, "impression", cost=5.0),
            event(2, "click", cost=0.5),
            event(2, "click", cost=0.5),
        ],
    )
    ads.push("events", event(2, "click", cost=0.5))
    assert ads.state("billing", 7)["account"].spent == 500_000
    assert ads.counters["duplicates"] == 2


def test_a_minute_of_an_ad_is_one_row(ads: PipelineHarness) -> None:
    ads.push(
        "events",
        [event(1, "impression", 1), event(2, "click", 2, 0.25), event(3, "impression", 61)],
    )
    ads.advance_watermark(MINUTE_US)
    [row] = ads.take("ctr")
    assert (row["ad_id"], row["impressions"], row["clicks"], row["spend"]) == (1, 1, 1, 0.25)


def test_an_account_is_what_it_was_after_a_crash_and_goes_on_from_there(
    ads: PipelineHarness,
) -> None:
    ads.push("events", [event(1, "click", 1, 0.9), event(2, "click", 2, 0.9)])
    ads.crash()
    assert ads.state("billing", 7)["account"].spent == 1_800_000
    ads.push("events", [event(2, "click", 2, 0.9), event(3, "click", 3, 0.9)])
    assert ads.take("over_budget") == [{"client_id": 7, "spent_micros": 2_700_000, "clicks": 3}]


def test_nobody_is_billed_twice_wherever_it_crashes() -> None:
    events = [
        event(n % 9, ("click", "impression")[n % 2], n * 9, 0.7, client=n % 2, ad=n % 3)
        for n in range(12)
    ]

    def story(harness: PipelineHarness) -> None:
        harness.push("events", events[:6])
        harness.advance_watermark(MINUTE_US)
        harness.push("events", events[6:])
        harness.finish()

    assert_survives_crashes(PIPELINE, story, params={"budget": 2}, every=4)
