"""Timers and watermarks of a shard."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.api import Computation
from millwheel.core.model.records import Domain
from millwheel.core.model.times import IDLE_TIME, LAST_TIME, MAX_TIME, SECOND
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import AggregateSpec, SlicesSpec, WindowSpec
from tests.computations import computation_spec
from tests.unit.engine.workers.bench import (
    BY_KEY,
    NOW,
    Counting,
    ShardBench,
    Silent,
    computation,
    pipeline,
    values_of,
)


class Clocks(Computation):
    """Sets the timers that the value asks for and tells when they fire."""

    def process_record(self, ctx: Any, record: Any) -> None:
        for domain in Domain:
            if domain.value in record.value:
                ctx.set_timer("t", record.value[domain.value], domain)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        ctx.produce("out", [timer.domain.value, timer.at])


def test_event_timers_fire_once_the_watermark_has_passed_them_and_survive_a_crash() -> None:
    bench = ShardBench(Clocks)
    bench.deliver(("a", {"event": 100}, 5))
    bench.watermark(100)
    assert bench.through() == []
    bench.crash()
    bench.watermark(101)
    bench.run()
    bench.settle()
    [first] = bench.sends()
    assert values_of([first], "out") == [["event", 100]]
    bench.crash()
    bench.watermark(MAX_TIME)
    bench.run()
    bench.settle()
    assert [send.batch.seqs for send in bench.sends()] == [first.batch.seqs]


def test_processing_timers_follow_the_wall_clock() -> None:
    bench = ShardBench(Clocks)
    bench.deliver(("a", {"processing": NOW + 10}, 5))
    bench.watermark(1_000)
    assert bench.through() == []
    assert bench.shard.admission.runs_at(NOW) == NOW + 11, "fired once the clock has passed it"
    bench.clock.now = NOW + 11
    assert bench.through() == [["processing", NOW + 10]]


def test_a_new_owner_never_goes_behind_a_watermark_published_beside_a_waiting_timer() -> None:
    bench = ShardBench(Clocks)
    bench.deliver(("a", {"processing": NOW + 10}, 5))
    bench.watermark(1_000)
    bench.through()
    bench.watermark(9_000)
    bench.run()
    assert bench.shard.watermark.hold(NOW).at == 1_000, "nobody would know of 9,000 after a crash"
    bench.through()
    published = bench.shard.watermark.hold(NOW).at
    assert published == 9_000
    bench.crash()
    bench.clock.now = NOW + 11
    bench.run()
    bench.settle()
    [send] = bench.sends()
    assert send.batch.timestamps == [published]


def test_without_processing_timers_a_risen_watermark_costs_no_commit() -> None:
    bench = ShardBench(Clocks)
    bench.deliver(("a", {"event": 100_000}, 5))
    bench.watermark(1_000)
    bench.through()
    bench.watermark(9_000)
    assert not bench.shard.admission.runnable(NOW)
    assert bench.shard.watermark.hold(NOW).at == 9_000


def test_the_end_of_the_input_fires_processing_timers_at_once() -> None:
    bench = ShardBench(Clocks)
    bench.deliver(("a", {"processing": NOW + 10**12}, 5))
    bench.run()
    bench.settle()
    bench.watermark(MAX_TIME)
    assert bench.shard.watermark.hold(NOW).at < MAX_TIME
    assert bench.through() == [["processing", NOW + 10**12]]
    assert bench.shard.watermark.hold(NOW).at == MAX_TIME


def test_the_watermark_is_held_by_the_inbox_the_commits_the_productions_and_the_timers() -> None:
    bench = ShardBench(Counting)
    bench.watermark(1_000)
    bench.deliver(("a", 1, 500))
    assert bench.shard.watermark.hold(NOW).at == 500
    assert "inbox" in bench.shard.watermark.hold(NOW).holder
    bench.run()
    assert bench.shard.watermark.hold(NOW).at == 500
    bench.settle()
    [send] = bench.sends()
    assert bench.shard.watermark.hold(NOW).at == 500
    assert "not yet applied by sink.out-0" in bench.shard.watermark.hold(NOW).holder
    bench.ack(send)
    assert bench.shard.watermark.hold(NOW).at == 1_000
    assert bench.shard.watermark.hold(NOW).holder == "input"


def test_a_due_timer_holds_the_watermark_and_is_named() -> None:
    bench = ShardBench(Clocks)
    bench.deliver(("a", {"event": 100}, 5))
    bench.run()
    bench.settle()
    bench.watermark(1_000)
    hold = bench.shard.watermark.hold(NOW)
    assert hold.at == 100
    assert "timer 't' of key 'a'" in hold.holder


def test_a_commit_in_flight_holds_the_watermark_at_what_it_was_before() -> None:
    bench = ShardBench(Silent)
    bench.watermark(1_000)
    bench.deliver(("a", 1, 500))
    bench.run()
    assert bench.shard.watermark.hold(NOW).at == 500
    bench.settle()
    assert bench.shard.watermark.hold(NOW).at == 1_000


def test_the_watermark_of_a_shard_does_not_go_back_under_a_new_owner() -> None:
    bench = ShardBench(Silent)
    bench.watermark(1_000)
    bench.deliver(("a", 1, 2_000))
    bench.run()
    bench.settle()
    bench.crash()
    assert bench.shard.watermark.input == 1_000


def test_work_at_the_last_instant_is_not_reported_as_silence() -> None:
    """A report of that instant says that a source is silent, and holds nothing."""
    bench = ShardBench(Clocks)
    bench.deliver(("a", {"event": LAST_TIME}, 5))
    bench.run()
    bench.settle()
    bench.watermark(MAX_TIME - 1)
    assert bench.shard.watermark.hold(NOW).at == LAST_TIME - 1
    assert LAST_TIME == IDLE_TIME


LATE_SIDES: dict[str, dict[str, Any]] = {
    "slices": {"slices": SlicesSpec((SECOND,), 5 * SECOND)},
    "windows": {"window": WindowSpec("tumbling", {"size_us": SECOND})},
}


@pytest.mark.parametrize("how", LATE_SIDES)
def test_a_new_owner_emits_a_late_record_no_earlier_than_what_its_predecessor_has_published(
    how: str,
) -> None:
    work = computation_spec(
        "work",
        (InputSpec("events", BY_KEY),),
        (),
        late="side:out",
        aggregates=(AggregateSpec("n", "count"),),
        **LATE_SIDES[how],
    )
    bench = ShardBench(Silent, spec=pipeline(work))
    bench.deliver(("a", {}, 19 * SECOND))
    bench.watermark(20 * SECOND)
    bench.through()
    bench.watermark(40 * SECOND)
    assert bench.shard.watermark.hold(NOW).at == 20 * SECOND, (
        "nobody would know of 40 s after a crash"
    )
    bench.through()
    published = bench.shard.watermark.hold(NOW).at
    assert published == 40 * SECOND
    bench.crash()
    bench.deliver(("a", {}, SECOND), first=2)
    bench.run()
    bench.settle()
    [send] = bench.sends()
    assert send.batch.timestamps == [published]
    bench.ack(send)
    bench.watermark(IDLE_TIME)
    assert bench.through() == []
    bench.watermark(MAX_TIME)
    assert bench.through() == []
    assert bench.shard.watermark.hold(NOW).at == MAX_TIME, (
        "the end needs no floor: nothing comes behind it"
    )


class Ringing(Computation):
    """Sets a processing-time timer when a window fires."""

    def process_window(self, ctx: Any, key: Any, window: Any, records: Any) -> None:
        ctx.set_timer("t", NOW + 10, Domain.PROCESSING)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        ctx.produce("out", timer.at)


def test_timers_of_window_callbacks_emit_nothing_behind_a_published_watermark() -> None:
    bench = ShardBench(
        Ringing,
        spec=pipeline(
            computation(callback="bench:It", window=WindowSpec("tumbling", {"size_us": SECOND}))
        ),
    )
    bench.deliver(("a", {}, 5))
    bench.through()
    bench.watermark(20 * SECOND)
    bench.through()
    bench.watermark(40 * SECOND)
    assert bench.shard.watermark.hold(NOW).at == 20 * SECOND
    bench.through()
    published = bench.shard.watermark.hold(NOW).at
    bench.crash()
    bench.clock.now = NOW + 11
    bench.run()
    bench.settle()
    [send] = bench.sends()
    assert send.batch.timestamps == [published] == [40 * SECOND]
