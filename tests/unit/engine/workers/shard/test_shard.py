from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millwheel.api import Computation
from millwheel.core.formats.store_layout import PENDING, RUNS
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import Delivery, Productions
from millwheel.engine.workers.delivery.inbox import DeliveryOutcome
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.errors import InvariantError
from tests.transcripts.spoken import Story, check, rewrite, stories
from tests.unit.engine.workers.bench import (
    NOW,
    Counting,
    Dial,
    ShardBench,
    Silent,
    computation,
    pipeline,
    values_of,
)
from tests.unit.engine.workers.shard.shard_stories import OneShard

STRAGGLER = ShardLimits().straggler_us
EXACT, LEAST = Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE
STRONG, WEAK = Productions.STRONG, Productions.WEAK
DIALS = [
    Dial(delivery, productions) for delivery in (EXACT, LEAST) for productions in (STRONG, WEAK)
]
EXACT_DIALS = [dial for dial in DIALS if dial.delivery is EXACT]


class Idle(Computation):
    def process_record(self, ctx: Any, record: Any) -> None:
        pass


def families(bench: ShardBench, family: bytes) -> list[bytes]:
    return [key for key in bench.stored() if key.startswith(family)]


def test_rewrite(request: pytest.FixtureRequest) -> None:
    """Before the transcripts, so that they run as they were rewritten."""
    if not request.config.getoption("--rewrite"):
        pytest.skip("only with --rewrite")
    rewrite("shard", OneShard)


@pytest.mark.parametrize("story", stories("shard"), ids=lambda story: story.title)
def test_transcript(story: Story) -> None:
    check(story, OneShard())


# --- the guarantee dial ---------------------------------------------------------------------------


@pytest.mark.parametrize("dial", DIALS)
def test_weak_productions_have_ids_when_delivery_is_exact_and_strong_ones_have_numbers(
    dial: Dial,
) -> None:
    bench = ShardBench(Counting, dial)
    bench.deliver(("a", 1, 5), ("a", 2, 6))
    bench.run()
    bench.settle()
    [send] = bench.sends()
    weak = dial.productions is WEAK
    assert send.batch.seqs == ([] if weak else [1, 2])
    assert (send.batch.ids is not None) is (weak and dial.delivery is EXACT)
    if send.batch.ids is not None:
        assert len(set(send.batch.ids)) == 2
        assert all(send.batch.ids)


@pytest.mark.parametrize("dial", DIALS)
def test_numbers_of_a_channel_keep_out_what_was_applied(dial: Dial) -> None:
    bench = ShardBench(Counting, dial)
    bench.deliver(("a", 1, 5), ("a", 2, 6))
    assert [row["number"] for row in bench.through()] == [1, 2]
    bench.crash()
    bench.through()
    bench.deliver(("a", 2, 6), ("a", 3, 7), first=2)
    assert [(row["number"], row["value"]) for row in bench.through()] == [(3, 3)]


@pytest.mark.parametrize("dial", DIALS)
def test_ids_from_outside_are_remembered_when_delivery_is_exact(dial: Dial) -> None:
    bench = ShardBench(Counting, dial)
    bench.deliver(("a", 1, 5), ids=["x"], channel="one")
    bench.deliver(("a", 1, 5), ids=["x"], channel="two")
    exact = dial.delivery is EXACT
    assert len(bench.through()) == (1 if exact else 2)
    assert bool(families(bench, RUNS)) is exact
    assert bench.shard.meta.counters == ({"duplicates.events": 1} if exact else {})


@pytest.mark.parametrize("dial", DIALS)
def test_what_was_acked_survives_a_crash(dial: Dial) -> None:
    bench = ShardBench(Counting, dial)
    bench.deliver(("a", 1, 5))
    bench.run()
    if dial.productions is WEAK:
        bench.ack(*bench.sends())
        bench.run()
    bench.settle()
    assert bench.acked
    bench.crash()
    if dial.productions is STRONG:
        assert values_of(bench.sends(), "out") == [{"key": "a", "number": 1, "value": 1}]
    bench.deliver(("a", 2, 6), first=2)
    assert bench.through()[-1]["number"] == 2


@pytest.mark.parametrize("dial", DIALS)
def test_what_was_not_durable_never_happened(dial: Dial) -> None:
    bench = ShardBench(Counting, dial)
    bench.deliver(("a", 1, 5))
    bench.run()
    bench.crash()
    assert bench.sends() == []
    bench.deliver(("a", 1, 5))
    assert [row["number"] for row in bench.through()] == [1]


def test_a_weak_production_that_is_sent_again_has_the_same_id() -> None:
    bench = ShardBench(Counting, Dial(EXACT, WEAK))
    bench.deliver(("a", 1, 5), first=7)
    bench.run()
    [first] = bench.sends()
    bench.crash()
    bench.deliver(("a", 1, 5), first=7)
    bench.run()
    [again] = bench.sends()
    assert again.batch.ids == first.batch.ids


def test_a_commit_that_nobody_waits_for_waits_for_company() -> None:
    bench = ShardBench(Counting, Dial(EXACT, WEAK))
    bench.deliver(("a", 1, 5))
    bench.run()
    bench.ack(*bench.sends())
    assert bench.shard.commits.submits_at() == NOW + ShardLimits().gather_us
    strong = ShardBench(Counting)
    strong.deliver(("a", 1, 5))
    strong.shard.run(NOW)
    assert strong.shard.commits.submits_at() == 0
    list(strong.shard.commits.submittable(NOW))
    assert strong.shard.commits.submits_at() == MAX_TIME


def test_a_checkpoint_taken_before_a_weak_commit_is_written_holds_its_productions() -> None:
    bench = ShardBench(Counting, Dial(EXACT, WEAK))
    bench.deliver(("a", 1, 5))
    bench.run()
    bench.sends()
    bench.shard.checkpoint("bench")
    assert any(key.startswith(PENDING) for key in bench.stored())
    bench.clock.now += STRAGGLER
    bench.run()
    [commit] = bench.settle()
    assert len([key for key, _ in commit.puts if key.startswith(PENDING)]) == 1


def test_commits_behind_a_weak_one_wait_for_it() -> None:
    class Half(Counting):
        def process_record(self, ctx: Any, record: Any) -> None:
            if record.value:
                super().process_record(ctx, record)
            else:
                self.seen.set(-1)

    bench = ShardBench(Half, Dial(EXACT, WEAK), ShardLimits(bundle=1))
    bench.deliver(("a", 1, 5))
    bench.deliver(("a", 0, 6), first=2)
    bench.run()
    assert bench.shard.commits.made == 2
    assert not bench.waiting
    bench.ack(*bench.sends())
    bench.run()
    assert [commit.number for commit in bench.settle()] == [1, 2]


# --- commits --------------------------------------------------------------------------------------


def test_durability_out_of_order_is_a_bug_and_is_told() -> None:
    bench = ShardBench(Silent, limits=ShardLimits(bundle=1))
    bench.deliver(("a", 1, 5))
    bench.deliver(("a", 2, 5), first=2)
    bench.run()
    with pytest.raises(InvariantError, match="out of order"):
        bench.shard.durable(bench.waiting[1][0], NOW)


def test_a_gap_in_a_channel_is_refused() -> None:
    bench = ShardBench(Silent)
    bench.deliver(("a", 1, 5))
    assert (
        bench.shard.offer("up", 1, 5, bench.shard.run(NOW).arrivals[0].batch, None)
        is DeliveryOutcome.RESTART
    )  # type: ignore[union-attr]


# --- productions after a recovery -----------------------------------------------------------------


def test_a_new_owner_sends_nothing_before_it_may_act() -> None:
    bench = ShardBench(Counting)
    bench.deliver(("a", 1, 5))
    bench.run()
    bench.settle()
    entry = ShardEntry("work-0", tile(1)[0], "w0", 2)
    fresh = bench.assembly.make_shard("work", entry, bench.shard.store, bench.router)
    assert list(fresh.outbox.sends()) == []
    assert fresh.watermark.hold(NOW).at == MIN_TIME
    fresh.start()
    assert len(list(fresh.outbox.sends())) == 1


def test_a_production_without_consumers_is_counted_and_dropped() -> None:
    spec = pipeline(computation(callback="bench:It"))
    bench = ShardBench(Counting, spec=replace(spec, sinks=()))
    bench.deliver(("a", 1, 5))
    assert bench.through() == []
    assert bench.shard.meta.counters == {"unconsumed.out": 1}
    assert not families(bench, PENDING)


def test_a_bundle_that_leaves_no_trace_need_not_run_again() -> None:
    bench = ShardBench(Idle)
    bench.deliver(("a", 1, 5))
    bench.through()
    assert not bench.shard.admission.runnable(NOW)
    assert bench.shard.run(NOW) is None
