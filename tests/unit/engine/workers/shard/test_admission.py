"""Whether a shard runs a bundle, and how much of what waits it takes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.spec import Productions
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.shard.admission import BundleSize, ShardLimits
from tests.unit.engine.workers.bench import (
    NOW,
    Counting,
    Dial,
    ShardBench,
    Silent,
    computation,
    pipeline,
)


def test_a_shard_without_work_does_not_run_and_sleeps_for_ever() -> None:
    bench = ShardBench(Silent)
    assert bench.shard.admission.runs_at(NOW) == MAX_TIME


def test_while_the_journal_writes_few_records_wait_and_many_do_not() -> None:
    bench = ShardBench(Silent)
    bench.deliver(("a", 1, 5))
    assert bench.shard.admission.runnable(NOW)
    assert not bench.shard.admission.runnable(NOW, patient=True)
    bench.deliver(*[("a", n, 5) for n in range(300)], channel="other")
    assert bench.shard.admission.runnable(NOW, patient=True)


def test_patience_is_for_those_whose_productions_wait_for_the_disk() -> None:
    bench = ShardBench(Counting, Dial(productions=Productions.WEAK))
    bench.deliver(("a", 1, 5))
    assert bench.shard.admission.runnable(NOW, patient=True)


def test_no_more_commits_are_made_than_may_be_on_their_way() -> None:
    bench = ShardBench(Silent, limits=ShardLimits(in_flight=2))
    for number in (1, 2):
        bench.deliver(("a", number, 5), channel=f"c{number}")
        assert bench.shard.run(NOW) is not None
    bench.deliver(("a", 3, 5), channel="c3")
    assert bench.shard.admission.runs_at(NOW) == MAX_TIME, "a durable commit makes room, no time"
    bench.waiting += bench.shard.commits.submittable(NOW)
    bench.settle()
    assert bench.shard.admission.runnable(NOW)


def test_a_congested_shard_takes_nothing_until_its_consumers_have_applied_something() -> None:
    bench = ShardBench(Counting, limits=ShardLimits(pending=1))
    bench.deliver(("a", 1, 5))
    bench.run()
    bench.settle()
    sends = bench.sends()
    bench.deliver(("a", 2, 6), channel="other")
    assert bench.shard.admission.congested()
    assert bench.shard.admission.runs_at(NOW) == MAX_TIME, "an ack makes room, no time"
    bench.ack(*sends)
    assert bench.shard.admission.runnable(NOW)


def test_in_a_circle_what_follows_from_our_own_productions_is_taken_however_much_waits() -> None:
    """Otherwise two shards that send to each other fill up and wait for each other for ever."""
    bench = ShardBench(Counting, limits=ShardLimits(pending=1))
    bench.deliver(("a", 1, 5))
    bench.run()
    admission = bench.shard.admission
    circle = replace(admission, identity=replace(admission.identity, circle=frozenset({"back"})))
    bench.deliver(("a", 2, 6), channel="other-0")
    assert not circle.runnable(NOW, False)
    bench.deliver(("a", 3, 6), channel="back-0")
    assert circle.runnable(NOW, False)
    arrivals, most_timers = circle.take(NOW)
    assert ([arrival.channel for arrival in arrivals], most_timers > 0) == (["back-0"], True)
    assert circle.take(NOW) == ([], 0), "no timer fires, either"
    arrivals, _ = replace(circle, limits=ShardLimits()).take(NOW)
    assert [arrival.channel for arrival in arrivals] == ["other-0"]


def test_a_bundle_takes_no_more_than_its_size_and_at_least_one_delivery() -> None:
    bench = ShardBench(Silent, limits=ShardLimits(bundle=3))
    for number in range(3):
        bench.deliver(("a", 1, 5), ("a", 2, 5), channel=f"c{number}")
    assert [len(bench.shard.admission.take(NOW)[0]) for _ in range(4)] == [1, 1, 1, 0]
    bench.deliver(*[("a", n, 5) for n in range(9)], channel="large")
    assert len(bench.shard.admission.take(NOW)[0]) == 1


def test_very_many_due_windows_fire_in_several_bundles_before_records_are_taken() -> None:
    """400 keys of which 11 windows are due: more than 5,000 timers, as the admission counts."""
    window = WindowSpec("cumulative", {"size_us": 1_000, "every_us": 10})
    work = computation(window=window, aggregates=(AggregateSpec("n", "count"),))
    bench = ShardBench(Counting, spec=pipeline(work))
    bench.deliver(*[(f"k{key}", {}, 5) for key in range(400)])
    bench.run()
    bench.watermark(112)
    bench.deliver(("k0", {}, 115), channel="later")
    pending = [bench.shard.run(NOW), bench.shard.run(NOW)]
    assert [len(each.arrivals) if each else None for each in pending] == [0, 0]
    assert len(bench.shard.commits.pending) == 3
    first = bench.shard.outbox.unfinished
    while bench.shard.admission.runnable(NOW):
        bench.shard.run(NOW)
        bench.waiting += bench.shard.commits.submittable(NOW)
        bench.settle()
    made = [value for value in bench.through() if value["window_end"] <= 110]
    assert first
    assert len(made) == 400 * 11
    assert {value["n"] for value in made} == {1}


WEIGHTS = st.integers(0, 10**7)


def weighing(weight: int) -> list[Arrival]:
    """Arrivals of one batch of this weight; none for 0."""
    batch = cast("Any", SimpleNamespace(weight=weight))
    return [Arrival("c", 1, 0, batch, None, 0)] if weight else []


@given(st.integers(1, 50_000), st.lists(st.tuples(WEIGHTS, WEIGHTS), max_size=20))
def test_a_bundle_takes_at_least_one_and_never_more_than_the_limit(
    limit: int, bundles: list[tuple[int, int]]
) -> None:
    size = BundleSize(limit)
    for taken, made in bundles:
        size.note(weighing(taken), made)
        assert 1 <= size.most <= limit


def test_what_makes_much_of_little_is_taken_in_small_bundles_until_it_does_not() -> None:
    size = BundleSize(1_000)
    size.note(weighing(100), 100_000)
    assert size.most == 1, "a thousand for each: one makes a full bundle"
    for expected in (2, 4, 8):
        size.note(weighing(1), 10)
        assert size.most == expected


def test_a_bundle_of_timers_alone_says_nothing_of_how_much_records_make() -> None:
    size = BundleSize(1_000)
    size.note(weighing(10), 2_000)
    before = size.most
    size.note(weighing(0), 0)
    assert size.most == before == 5


def test_many_records_that_make_as_many_are_no_reason_to_take_less() -> None:
    size = BundleSize(1_000)
    size.note(weighing(5_000), 5_000)
    assert size.most == 1_000
