"""The zeitgeist pipeline in memory: hours per series, spikes and dips, with a crash in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.testing import PipelineHarness, assert_survives_crashes

PIPELINE = Path(__file__).with_name("pipeline.yaml")
HOUR_US = 3_600_000_000
SERIES = "Twitter_volume_AAPL.csv"


@pytest.fixture
def zeitgeist() -> Iterator[PipelineHarness]:
    with PipelineHarness(PIPELINE) as harness:
        yield harness


def hour(harness: PipelineHarness, number: int, mentions: int, series: str = SERIES) -> None:
    """Two samples of an hour of a series, and its end. A time is text, as in the files."""
    day, hours = divmod(number, 24)
    samples = [
        {"timestamp": f"2015-03-{day + 1:02} {hours:02}:{minutes}:00", "value": mentions // 2}
        for minutes in (10, 40)
    ]
    harness.push("mentions", samples, key=series)
    harness.advance_watermark(MARCH_US + (number + 1) * HOUR_US)


MARCH_US = 1_425_168_000_000_000
"""2015-03-01."""


def test_each_series_has_hours_of_its_own(zeitgeist: PipelineHarness) -> None:
    zeitgeist.push("mentions", {"timestamp": "2015-03-01 00:05:00", "value": 3}, key="a.csv")
    zeitgeist.push("mentions", {"timestamp": "2015-03-01 00:50:00", "value": 4}, key="b.csv")
    zeitgeist.advance_watermark(MARCH_US + HOUR_US)
    assert sorted((row["key"], row["mentions"]) for row in zeitgeist.take("by_hour")) == [
        ("a.csv", 3),
        ("b.csv", 4),
    ]


def test_a_spike_and_a_dip_after_two_usual_days_with_a_crash_between_them(
    zeitgeist: PipelineHarness,
) -> None:
    for number in range(49):
        hour(zeitgeist, number, mentions=100 + 40 * (number % 2))
    assert zeitgeist.read("alerts") == []
    known = zeitgeist.state("watch", SERIES)["model"]
    zeitgeist.crash()
    assert zeitgeist.state("watch", SERIES)["model"] == known
    hour(zeitgeist, 49, mentions=4000)
    hour(zeitgeist, 50, mentions=0)
    assert [(alert["series"], alert["kind"]) for alert in zeitgeist.take("alerts")] == [
        (SERIES, "spike"), (SERIES, "dip"),
    ]  # fmt: skip


def test_a_series_that_falls_silent_is_a_dip_to_nothing_once(zeitgeist: PipelineHarness) -> None:
    for number in range(49):
        hour(zeitgeist, number, mentions=100 + 40 * (number % 2))
    zeitgeist.advance_watermark(MARCH_US + 60 * HOUR_US)
    assert [(row["mentions"], row["samples"]) for row in zeitgeist.take("by_hour")][-2:] == [
        (100, 2),
        (0, 0),
    ]
    (alert,) = zeitgeist.take("alerts")
    assert (alert["kind"], alert["mentions"], alert["window_start"]) == (
        "dip",
        0,
        MARCH_US + 49 * HOUR_US,
    )


def test_what_is_no_number_is_a_dead_letter(zeitgeist: PipelineHarness) -> None:
    zeitgeist.push("mentions", {"timestamp": "2015-03-01 00:05:00", "value": "many"}, key=SERIES)
    assert "declared as int" in zeitgeist.take("dead_letters")[0]["reason"]


def test_models_are_the_same_wherever_it_crashes() -> None:
    def story(harness: PipelineHarness) -> None:
        for number in range(4):
            hour(harness, number, mentions=100 + number)
            hour(harness, number, mentions=50, series="Twitter_volume_FB.csv")

    assert_survives_crashes(PIPELINE, story, every=20)
