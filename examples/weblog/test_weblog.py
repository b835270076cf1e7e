"""The weblog pipeline in memory: traffic, alerts and the day's audience, with a crash in
between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millwheel.testing import PipelineHarness, assert_survives_crashes

PIPELINE = Path(__file__).with_name("pipeline.yaml")
MINUTE_US = 60_000_000


def hit(path: str = "/", client: str = "192.0.2.1", size: int = 10) -> dict[str, Any]:
    return {"path": path, "client": client, "size": size}


@pytest.fixture
def weblog() -> Iterator[PipelineHarness]:
    with PipelineHarness(PIPELINE) as harness:
        yield harness


def minute(harness: PipelineHarness, number: int, hits: int, path: str = "/") -> None:
    """So many hits of a path in a minute, and its end."""
    harness.push("hits", [hit(path) for _ in range(hits)], timestamp=number * MINUTE_US)
    harness.advance_watermark((number + 1) * MINUTE_US)


def test_traffic_is_one_row_for_each_path_and_minute(weblog: PipelineHarness) -> None:
    weblog.push(
        "hits", [hit(), hit(client="192.0.2.2", size=5), hit("/about")], timestamp=30_000_000
    )
    weblog.advance_watermark(MINUTE_US)
    rows = {
        row["path"]: (row["hits"], row["bytes"], row["visitors"])
        for row in weblog.take("traffic_by_minute")
    }
    assert rows == {"/": (2, 15, 2), "/about": (1, 10, 1)}


def test_a_spike_is_a_minute_with_four_times_the_usual_hits(weblog: PipelineHarness) -> None:
    for number in range(5):
        minute(weblog, number, hits=2)
    minute(weblog, 5, hits=7)
    assert weblog.read("alerts") == []
    minute(weblog, 6, hits=12)
    assert weblog.take("alerts") == [
        {"path": "/", "window_start": 6 * MINUTE_US, "hits": 12, "usual": 2.83}
    ]


def test_the_detector_goes_on_with_what_it_knew_before_a_crash(weblog: PipelineHarness) -> None:
    for number in range(5):
        minute(weblog, number, hits=2)
    before = weblog.state("spikes", "/")["usual"]
    weblog.crash()
    after = weblog.state("spikes", "/")["usual"]
    assert (after.minutes, after.mean) == (before.minutes, before.mean) == (5, 2.0)
    minute(weblog, 5, hits=9)
    assert [alert["hits"] for alert in weblog.take("alerts")] == [9]


def test_the_audience_of_a_day_grows_by_new_visitors_only(weblog: PipelineHarness) -> None:
    weblog.push("hits", [hit(client="192.0.2.1"), hit(client="192.0.2.2")], timestamp=0)
    weblog.push(
        "hits", [hit("/a", client="192.0.2.2"), hit("/a", client="192.0.2.3")], timestamp=MINUTE_US
    )
    weblog.advance_watermark(3 * MINUTE_US)
    assert [row["visitors"] for row in weblog.take("visitors_today")][:2] == [2, 3]


def test_rows_and_alerts_are_the_same_wherever_it_crashes() -> None:
    def story(harness: PipelineHarness) -> None:
        for number in range(6):
            minute(harness, number, hits=1 + 8 * (number == 5))

    assert_survives_crashes(PIPELINE, story, every=25)
