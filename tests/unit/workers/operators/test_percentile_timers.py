"""Windows that fire once a share of the input has come, through the whole runtime."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.formats.store_layout import SHARE_TIMER
from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import tile
from millwheel.testing import PipelineHarness
from millwheel.testing.pushed import DEFAULT_PARTITION, _Row

S = 1_000_000
SHARDS = 4
PIPELINE = """
    pipeline: shop
    streams:
      orders: {{source: {{files: {{path: none, format: jsonl}}}}, timestamp: ts}}
    computations:
      {before}
      minutes:
        input: {{{stream}: {{key: who}}}}
        window: {{tumbling: 1m}}
        aggregate: {{worth: {{sum: worth}}}}
        trigger: {{after_watermark: {{early: {{after_percentile_watermark: {share}}}}}}}
        accumulation: accumulating
        output: minutes
"""
STEPS = "shown: {input: orders, filter: worth > 0, output: shown}"
Make = Callable[..., PipelineHarness]


def partition_of_each_shard() -> list[str]:
    """A partition for each shard of the source."""
    ranges = tile(SHARDS)
    return [next(f"p{n}" for n in range(1000) if key_hash(f"p{n}") in each) for each in ranges]


PARTITIONS = partition_of_each_shard()


@pytest.fixture
def make(tmp_path: Path) -> Any:
    made: list[PipelineHarness] = []

    def make(share: float = 0.5, steps: bool = False, **options: Any) -> PipelineHarness:
        text = PIPELINE.format(share=share, before=STEPS if steps else "", stream="shown" if steps else "orders")
        (tmp_path / "pipeline.yaml").write_text(textwrap.dedent(text))
        made.append(PipelineHarness(tmp_path / "pipeline.yaml", shards=SHARDS, **options))
        for partition in PARTITIONS:
            made[-1].push("orders", {"who": "ann", "worth": 1, "ts": 10 * S}, key=partition)
        advance(made[-1], 0, DEFAULT_PARTITION, *PARTITIONS)
        advance(made[-1], 10**6 * S, DEFAULT_PARTITION)
        return made[-1]

    yield make
    for harness in made:
        harness.close()


def advance(harness: PipelineHarness, t: int, *partitions: str) -> None:
    """State the watermark of some partitions only."""
    stream = harness._pushed["orders"]
    for partition in partitions:
        stream._logs[partition].append(_Row(None, 0, t))
    harness._look([stream])


def said(harness: PipelineHarness) -> list[int]:
    return [row["worth"] for row in harness.take("minutes")]


@pytest.mark.parametrize("steps", [False, True])
def test_a_window_speaks_early_once_the_share_has_passed_its_end_and_on_time_when_all_have(
    make: Make, steps: bool
) -> None:
    harness = make(0.5, steps)
    advance(harness, 60 * S - 1, *PARTITIONS)
    assert said(harness) == []
    advance(harness, 60 * S, PARTITIONS[0])
    assert said(harness) == []
    advance(harness, 60 * S, PARTITIONS[1])
    assert said(harness) == [4]
    harness.push("orders", {"who": "ann", "worth": 5, "ts": 60 * S - 1}, key=PARTITIONS[3])
    assert said(harness) == [9]  # early again: it has passed
    advance(harness, 60 * S, PARTITIONS[2])
    assert said(harness) == []
    advance(harness, 60 * S, PARTITIONS[3])
    assert said(harness) == [9]  # on time


def test_the_whole_share_is_the_low_watermark(make: Make) -> None:
    harness = make(1.0)
    for partition in PARTITIONS[:3]:
        advance(harness, 70 * S, partition)
    assert said(harness) == []
    advance(harness, 70 * S, PARTITIONS[3])
    assert said(harness) == [4]


@pytest.mark.parametrize("steps", [False, True])
def test_a_crash_loses_no_timer_and_doubles_no_pane(make: Make, steps: bool) -> None:
    harness = make(0.75, steps)
    advance(harness, 60 * S, *PARTITIONS[:2])
    harness.crash()
    assert said(harness) == []
    advance(harness, 60 * S, PARTITIONS[2])
    assert said(harness) == [4]
    harness.crash()
    advance(harness, 60 * S, PARTITIONS[3])
    assert said(harness) == [4]
    assert [list(s.store.scan(SHARE_TIMER)) for s in harness._cluster.shards_of("minutes")] == [[]] * SHARDS


@pytest.mark.parametrize("place", range(1, 60, 4))
def test_a_crash_at_any_place_changes_nothing(make: Make, place: int) -> None:
    harness = make(0.5, True, crash_at=place)
    advance(harness, 60 * S, *PARTITIONS[:2])
    advance(harness, 60 * S, *PARTITIONS[2:])
    assert said(harness) == [4, 4]


def test_only_what_lies_before_such_a_trigger_reports_shares(make: Make) -> None:
    harness = make(0.5)
    [shard] = harness._cluster.shards_of("source.orders")[:1]
    assert list(shard.watermark.of_shares(0)) == [0.5]
    assert harness._cluster.shards_of("sink.minutes")[0].watermark.of_shares(0) == {}
