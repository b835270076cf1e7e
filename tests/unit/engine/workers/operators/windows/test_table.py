from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.formats.store_layout import SHARE_TIMER
from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import tile
from millwheel.core.windows.contract import Effects, HoldEffect, RejectedRecord
from millwheel.core.windows.panes import Retraction
from millwheel.engine.workers.operators.windows.table import (
    KeyRecords,
    WindowCells,
    WindowHolds,
)
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.testing import PipelineHarness
from millwheel.tools.testing.pushes import DEFAULT_PARTITION, _Row
from tests.fakes.plain_storage import SimStore

ROOM = 10_000


def cells(limit: int = 100, most: int = ROOM) -> tuple[WindowCells, Overlay]:
    overlay = Overlay(SimStore({}))
    return WindowCells(overlay, limit, most), overlay


def test_slots_of_keys_are_apart_and_an_empty_one_has_the_default() -> None:
    made, _ = cells()
    made.of("a")[(0, 10)] = [1]
    assert made.of("a").get((0, 10)) == [1]
    assert (made.of("b").get((0, 10)), made.of("a").get((10, 20), "none")) == (None, "none")


def test_what_was_flushed_is_there_for_the_next_owner_and_what_was_deleted_is_not() -> None:
    made, overlay = cells()
    mine = made.of("a")
    mine["kept"], mine["gone"] = 1, 2
    made.flush()
    del mine["gone"]
    made.flush()
    later = WindowCells(overlay, 100, ROOM).of("a")
    assert (later.get("kept"), later.get("gone")) == (1, None)


def test_what_was_not_flushed_is_dropped_and_read_again_from_the_store() -> None:
    made, _ = cells()
    mine = made.of("a")
    mine["slot"] = [1]
    made.flush()
    mine.get("slot").append(2)
    mine["slot"] = [1, 2]
    made.drop("a")
    made.flush()
    assert made.of("a").get("slot") == [1]


def test_what_cannot_be_stored_is_what_it_was_before() -> None:
    for bad in (object(), "x" * 200):
        made, _ = cells(most=100)
        mine: Any = made.of("a")
        mine["slot"] = "good"
        made.flush()
        mine["slot"] = bad
        made.flush()
        [(key, slot, why)] = made.unstorable
        assert (key, slot, mine.get("slot")) == ("a", "slot", "good")
        assert why


def test_one_slot_that_cannot_be_stored_costs_no_other() -> None:
    made, overlay = cells()
    mine: Any = made.of("a")
    mine["bad"], mine["good"] = object(), 1
    made.flush()
    assert WindowCells(overlay, 100, ROOM).of("a").get("good") == 1


def test_the_cache_is_trimmed_and_forgets_nothing() -> None:
    made, _ = cells(limit=4)
    for number in range(10):
        made.of(number)["slot"] = number
        made.flush()
    assert len(made._cells) <= 4
    assert [made.of(number).get("slot") for number in range(10)] == list(range(10))


def test_refused_records_get_the_stream_by_which_they_came() -> None:
    given = KeyRecords()
    one, other = {"n": 1}, {"n": None}
    given.records += [(one, 5), (other, 5), (Retraction({"n": 3}), 6)]
    given.streams += ["hits", "clicks", "orders"]
    effects = Effects()
    effects.rejected += [
        RejectedRecord("k", other, 5, "no number"),
        RejectedRecord("k", Retraction({"n": 3}), 6, "not held"),
    ]
    given.name_streams(effects)
    assert [bad.stream for bad in effects.rejected] == ["clicks", "orders"]


def test_a_record_that_did_not_come_has_no_stream() -> None:
    given = KeyRecords()
    given.records.append(({"n": 1}, 5))
    given.streams.append("hits")
    effects = Effects()
    effects.rejected.append(RejectedRecord("k", {"n": 1}, 7, "of another time"))
    given.name_streams(effects)
    assert [bad.stream for bad in effects.rejected] == [""]


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
        text = PIPELINE.format(
            share=share, before=STEPS if steps else "", stream="shown" if steps else "orders"
        )
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
    stream = harness._inputs.by_name["orders"]
    for partition in partitions:
        stream._logs[partition].append(_Row(None, 0, t))
    harness._cluster.read(["orders"])


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
    assert [list(s.store.scan(SHARE_TIMER)) for s in harness._cluster.shards_of("minutes")] == [
        []
    ] * SHARDS


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


def test_the_lowest_hold_is_that_of_the_watermark_and_another_owner_finds_it() -> None:
    overlay = Overlay(SimStore({}))
    holds = WindowHolds(overlay, key_hash)
    assert holds.lowest().at == WindowHolds(overlay, key_hash).lowest().at
    holds.take(
        [HoldEffect("a", "0,10", 5), HoldEffect("b", "0,20", 3), HoldEffect(("c", 1), "0,30", 4)]
    )
    holds.take([HoldEffect("b", "0,20", None)])
    holds.write()
    assert holds.lowest().holder == "window 0,30 of key ('c', 1), which outputs at 4"
    assert WindowHolds(overlay, key_hash).lowest() == holds.lowest()


def test_a_hold_that_is_withdrawn_is_stored_no_more() -> None:
    overlay = Overlay(SimStore({}))
    holds = WindowHolds(overlay, key_hash)
    holds.take([HoldEffect("a", "0,10", 5)])
    holds.write()
    holds.take([HoldEffect("a", "0,10", None)])
    holds.write()
    assert (
        WindowHolds(overlay, key_hash).lowest()
        == holds.lowest()
        == WindowHolds(Overlay(SimStore({})), key_hash).lowest()
    )
