"""A cluster in memory crashes anywhere and goes on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.tools.testing.test_pipeline_harness import Make, S, order


def test_every_shard_and_both_workers_take_part(make: Make) -> None:
    harness = make(shards=4)
    harness.push("orders", [order(n, f"c{n}") for n in range(50)])
    assert sum(harness.state("accounts", f"c{n}")["account"].worth for n in range(50)) == 250
    served = {s.identity.shard for s in harness._cluster.shards_of("accounts") if s.commits.made}
    assert len(served) == 4


@pytest.mark.parametrize("crash_every", [1, 13, 60])
def test_crashes_change_nothing(make: Make, crash_every: int) -> None:
    calm, rough = make(), make(crash_every=crash_every)
    for harness in (calm, rough):
        for n in range(8):
            harness.push(
                "orders", [order(2 * n, at=n * 20_000), order(2 * n + 1, "bob", at=n * 20_000)]
            )
            harness.advance_watermark(n * 20 * S)
        harness.crash()
        harness.push("orders", [order(1), order(99, worth=-4)])
        harness.finish()
    assert rough.crashes > calm.crashes == 1
    for stream in ("orders", "by_minute", "reminders", "dead_letters"):
        plain = [msgspec.json.encode(value) for value in calm.read(stream)]
        assert sorted(plain) == sorted(
            msgspec.json.encode(value) for value in rough.read(stream)
        ), stream
    assert calm.remembered() == rough.remembered()
    assert calm.counters == rough.counters


def test_timers_of_both_clocks_fire_once_and_at_the_same_times_wherever_it_crashes(
    tmp_path: Path, make: Make
) -> None:
    make()

    def story(harness: PipelineHarness) -> None:
        for n in range(3):
            harness.push(
                "orders", [order(2 * n, at=n * 20_000), order(2 * n + 1, "bob", at=n * 20_000)]
            )
            harness.advance_processing_time(n * 40 * S)
            harness.advance_watermark(n * 20 * S)
        harness.finish()

    assert_survives_crashes(tmp_path / "pipeline.yaml", story, every=7)


def test_a_crash_recovers_from_snapshots_and_from_journals(make: Make) -> None:
    harness = make()
    for n in range(120):
        harness.push("orders", order(n, f"c{n % 5}", at=n))
    storage = harness._cluster.storage
    snapshots = storage.snapshots()
    assert any(snapshots.latest(f"accounts-{i}") is not None for i in (0, 1)), (
        "some shard grew large enough"
    )
    before = harness.remembered()
    harness.crash()
    assert harness.remembered() == before
    harness.crash()
    assert harness.remembered() == before


def test_what_was_not_synced_is_gone_and_is_done_again(make: Make) -> None:
    harness = make()
    for shard in harness._cluster.shards_of("source.orders"):
        shard.operator.look(0)  # type: ignore[attr-defined]
    harness._inputs.by_name["orders"].push([order(1)])
    harness._cluster.do_later(lambda: None)
    harness.crash()
    assert harness.state("accounts", "ann")["seen"] == ["o1"]
