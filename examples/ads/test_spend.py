"""The spend of clients in memory: a user's clicks cost once, rates per minute, rows that are
replaced; with crashes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millwheel.testing import PipelineHarness

PIPELINE = Path(__file__).with_name("spend.yaml")
MINUTE_US = 60_000_000
PARAMS = {"input": "events.jsonl", "output": "out"}


def event(
    number: int, kind: str, second: float, user: int = 1, cost: float = 0.5, ad: int = 1
) -> dict[str, Any]:
    return {
        "event_id": f"e{number}", "ad_id": ad, "client_id": 7, "uid": user, "type": kind,
        "cost": cost if kind == "click" else 0.0, "ts": round(second * 1000),
    }  # fmt: skip


@pytest.fixture
def ads() -> Iterator[PipelineHarness]:
    with PipelineHarness(PIPELINE, params=PARAMS) as harness:
        yield harness


def standing(harness: PipelineHarness) -> dict[int, tuple[float, int]]:
    """What the sink shows: of each client the newest row."""
    return {row["client_id"]: (row["spent"], row["clicks"]) for row in harness.read("spend")}


def test_many_clicks_of_a_user_on_an_ad_cost_once_within_ten_minutes(ads: PipelineHarness) -> None:
    seconds = (0, 1, 2, 599, 600)
    ads.push("events", [event(n, "click", second) for n, second in enumerate(seconds)])
    ads.push("events", [event(10, "click", 601, user=2), event(11, "click", 602, ad=2)])
    ads.advance_watermark(11 * MINUTE_US)
    assert standing(ads) == {7: (2.0, 4)}
    assert ads.counters["deduplicated"] == 3


def test_the_rate_of_a_minute_counts_clicks_that_cost(ads: PipelineHarness) -> None:
    shown = [event(n, "impression", n) for n in range(4)]
    ads.push("events", [*shown, event(5, "click", 5), event(6, "click", 6), event(7, "click", 61)])
    ads.advance_watermark(MINUTE_US)
    assert ads.take("ctr") == [{"ad_id": 1, "window_start": 0, "ctr": 0.25}]


def test_a_row_goes_on_behind_a_crash_from_what_it_was(ads: PipelineHarness) -> None:
    ads.push("events", [event(1, "click", 1, user=1), event(2, "click", 2, user=2)])
    ads.advance_watermark(3_000_000)
    assert standing(ads) == {7: (1.0, 2)}
    ads.crash()
    ads.push("events", [event(3, "click", 3, user=1), event(4, "click", 4, user=3)])
    ads.advance_watermark(5_000_000)
    assert standing(ads) == {7: (1.5, 3)}, "the click of user 1 was paid before the crash"


def test_rows_and_rates_are_the_same_with_crashes_all_the_time() -> None:
    kinds = ("click", "impression", "click")
    events = [event(n % 7, kinds[n % 3], n * 9, user=n % 4, ad=n % 2) for n in range(8)]

    def ends(**crashes: int) -> Any:
        with PipelineHarness(PIPELINE, params=PARAMS, **crashes) as harness:
            harness.push("events", events[:4])
            harness.advance_watermark(MINUTE_US)
            harness.push("events", events[4:])
            harness.finish()
            assert harness.crashes > 1 or not crashes
            return standing(harness), sorted(map(repr, harness.read("ctr")))

    assert ends(crash_every=30) == ends()
