"""Records behind the watermark, through the real runtime: dropped and counted, to a side stream, re-fired, or taken."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millwheel.testing import PipelineHarness, assert_survives_crashes

S = 1_000_000
PIPELINE = """
    pipeline: shop
    streams:
      orders: {{source: {{injection: {{}}}}, timestamp: ts}}
    computations:
      minutes:
        input: {{orders: {{key: who}}}}
        window: {window}
        aggregate: {{worth: {{sum: worth}}, n: count}}
        output: minutes
        {late}
"""
WINDOWS = ["{tumbling: 1m}", "{sliding: 1m, every: 1m}", "{session: 30s}", "{cumulative: 1m, every: 1m}"]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(late: str = "", window: str = "{tumbling: 1m}") -> Path:
        file = tmp_path / "pipeline.yaml"
        file.write_text(textwrap.dedent(PIPELINE.format(window=window, late=late)))
        return file

    return write


def order(worth: int, at: int, who: str = "ann") -> dict[str, Any]:
    return {"who": who, "worth": worth, "ts": at * S}


def tell(harness: PipelineHarness) -> None:
    harness.push("orders", [order(1, 10), order(2, 20, "bob")])
    harness.advance_watermark(200 * S)
    harness.push("orders", order(4, 15))
    harness.push("orders", order(8, 16))
    harness.push("orders", order(16, 300))
    harness.finish()


def ann(harness: PipelineHarness, stream: str = "minutes") -> list[int]:
    return [row["worth"] for row in harness.read(stream) if row["who"] == "ann"]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("late", ["", "late: drop"])
def test_late_records_are_dropped_and_counted(write: Write, window: str, late: str) -> None:
    with PipelineHarness(write(late, window)) as harness:
        tell(harness)
        assert ann(harness) == [1, 16]
        assert harness.counters["late"] == 2
        assert harness.read("dead_letters") == []


@pytest.mark.parametrize("window", WINDOWS)
def test_late_records_go_to_a_side_stream_unchanged_and_are_counted(write: Write, window: str) -> None:
    with PipelineHarness(write("late: side:behind", window)) as harness:
        tell(harness)
        assert ann(harness) == [1, 16]
        assert harness.read("behind") == [order(4, 15), order(8, 16)]
        assert harness.counters["late"] == 2


def test_a_side_stream_may_be_consumed_and_nothing_is_late_there(write: Write) -> None:
    """It gives late records a time that its own watermark has not passed."""
    consumer = (
        "late: side:behind\n      all_late:\n        input: {behind: {key: who}}\n        window: {tumbling: 1m}\n"
    )
    consumer += "        aggregate: {worth: {sum: worth}}\n        output: all_late"
    with PipelineHarness(write(consumer)) as harness:
        tell(harness)
        assert sum(ann(harness, "all_late")) == 12
        assert harness.counters["late"] == 2


@pytest.mark.parametrize("window", ["{tumbling: 1m}", "{sliding: 1m, every: 1m}", "{session: 30s}"])
def test_late_records_make_late_panes_of_their_own(write: Write, window: str) -> None:
    with PipelineHarness(write("late: refire", window)) as harness:
        tell(harness)
        assert ann(harness) == [1, 4, 8, 16]
        assert "late" not in harness.counters


@pytest.mark.parametrize(("accumulation", "said"), [("discarding", [1, 4, 8, 16]), ("accumulating", [1, 5, 13, 16])])
def test_within_the_allowed_lateness_the_window_speaks_again(write: Write, accumulation: str, said: Any) -> None:
    with PipelineHarness(write(f"allowed_lateness: 5m\n        accumulation: {accumulation}")) as harness:
        tell(harness)
        assert ann(harness) == said
        assert "late" not in harness.counters


def test_the_allowed_lateness_ends_at_its_time(write: Write) -> None:
    with PipelineHarness(write("allowed_lateness: 1m\n        late: side:behind")) as harness:
        harness.push("orders", order(1, 10))
        harness.advance_watermark(120 * S - 1)
        harness.push("orders", order(2, 11))
        harness.advance_watermark(120 * S)
        harness.push("orders", order(4, 12))
        assert ann(harness) == [1, 2]
        assert ann(harness, "behind") == [4]
        assert harness.state("minutes", "ann") == {}


@pytest.mark.parametrize("late", ["late: drop", "late: refire", "allowed_lateness: 5m"])
def test_a_crash_at_any_place_changes_nothing(write: Write, late: str) -> None:
    assert assert_survives_crashes(write(late), tell, every=5) > 5


def test_a_crash_at_any_place_loses_no_late_record(write: Write) -> None:
    """Their time on the side stream is not compared: it is where the output watermark stood."""
    with PipelineHarness(write("late: side:behind")) as harness:
        tell(harness)
        units = harness.units
    for place in range(1, units, 5):
        with PipelineHarness(write("late: side:behind"), crash_at=place) as harness:
            tell(harness)
            assert (ann(harness), ann(harness, "behind")) == ([1, 16], [4, 8]), f"unit {place}"
