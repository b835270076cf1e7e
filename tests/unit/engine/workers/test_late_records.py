"""Records behind the watermark, through the real runtime: dropped and counted, to a side stream,
re-fired, or taken."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millwheel.adapters.ports import StateStore
from millwheel.core.formats.store_layout import Meta
from millwheel.core.model.times import MIN_TIME
from millwheel.engine.workers.shard import shard
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.sim.replacing import replaced

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
WINDOWS = [
    "{tumbling: 1m}",
    "{sliding: 1m, every: 1m}",
    "{session: 30s}",
    "{cumulative: 1m, every: 1m}",
]
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
def test_late_records_go_to_a_side_stream_unchanged_and_are_counted(
    write: Write, window: str
) -> None:
    with PipelineHarness(write("late: side:behind", window)) as harness:
        tell(harness)
        assert ann(harness) == [1, 16]
        assert harness.read("behind") == [order(4, 15), order(8, 16)]
        assert harness.counters["late"] == 2


def test_a_side_stream_may_be_consumed_and_nothing_is_late_there(write: Write) -> None:
    """It gives late records a time that its own watermark has not passed."""
    consumer = (
        "late: side:behind\n      all_late:\n        input: {behind: {key: who}}\n        window:"
        " {tumbling: 1m}\n"
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


@pytest.mark.parametrize(
    ("accumulation", "said"), [("discarding", [1, 4, 8, 16]), ("accumulating", [1, 5, 13, 16])]
)
def test_within_the_allowed_lateness_the_window_fires_again(
    write: Write, accumulation: str, said: Any
) -> None:
    with PipelineHarness(
        write(f"allowed_lateness: 5m\n        accumulation: {accumulation}")
    ) as harness:
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


@pytest.mark.parametrize(
    "late", ["late: drop", "late: side:behind", "late: refire", "allowed_lateness: 5m"]
)
def test_a_crash_at_any_place_changes_nothing(write: Write, late: str) -> None:
    assert assert_survives_crashes(write(late), tell, every=13) > 2


TWO_WAYS = """
    pipeline: shop
    streams:
      orders: {source: {injection: {}}, timestamp: ts}
      marks: {source: {injection: {}}, timestamp: ts}
    computations:
      checked: {input: {marks: {key: who}}, filter: worth > 0, output: checked}
      minutes:
        input: {orders: {key: who}, checked: {key: who}}
        window: {tumbling: 1m}
        aggregate: {n: count}
        output: minutes
        late: side:strays
      stray_minutes: {input: {strays: {key: who}}, window: {tumbling: 1m}, aggregate: {n: count},
        output: stray_minutes}
    sinks: {minutes: {stdout: {}}, strays: {stdout: {}}, stray_minutes: {stdout: {}}}
"""


def tell_by_two_ways(harness: PipelineHarness) -> None:
    harness.push("orders", order(1, 10))
    harness.advance_watermark(200 * S)
    harness.push("orders", order(2, 20))
    harness.finish()


def test_after_a_crash_no_window_that_has_fired_is_made_again_and_nothing_sent_aside_is_late(
    tmp_path: Path,
) -> None:
    """Its own watermark is that of its last commit until it hears another one: it is late for the
    same windows, and what it sends aside is not behind what was published."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(textwrap.dedent(TWO_WAYS))
    assert assert_survives_crashes(file, tell_by_two_ways, shards=1, workers=1, every=4) > 12


def test_a_watermark_that_is_forgotten_with_a_crash_is_noticed(tmp_path: Path) -> None:
    """A deliberate mistake: a new owner begins without the watermark of its last commit."""
    right = shard.read_meta

    def wrong(store: StateStore) -> Meta:
        meta = right(store)
        meta.watermark = MIN_TIME
        return meta

    file = tmp_path / "pipeline.yaml"
    file.write_text(textwrap.dedent(TWO_WAYS))
    with (
        replaced(shard, "read_meta", wrong),
        pytest.raises(AssertionError, match="stream minutes differs"),
    ):
        assert_survives_crashes(file, tell_by_two_ways, shards=1, workers=1)


def test_a_record_sent_aside_has_the_time_of_the_watermark_that_it_is_behind(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(textwrap.dedent(TWO_WAYS))
    with PipelineHarness(file) as harness:
        tell_by_two_ways(harness)
        assert [record.timestamp for record in harness.records("strays")] == [200 * S]
        assert [row["window_start"] for row in harness.read("stray_minutes")] == [180 * S]
