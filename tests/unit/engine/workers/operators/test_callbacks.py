"""Which timers fire, and what they see, is not decided by what else there is in their bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel import Computation, ValueState
from millwheel.core.model.records import Domain
from millwheel.core.pipeline.spec import Productions
from millwheel.engine.workers.shard.bundle_sizes import ShardLimits
from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.bench import NOW, Dial, ShardBench, computation, pipeline
from tests.unit.engine.workers.operators.combinations import HEAD, hit

CLOCK, EVENT = Domain.PROCESSING, Domain.EVENT


class Timers(Computation):
    """Does what its records say, and tells what it was called for."""

    fired = ValueState(int, default=0)
    on_timer: dict[str, list[Any]] = {
        "chain": [("set", "next", 20)],
        "next": [("set", "last", 30)],
        "back": [("set", "past", 1)],
        "kills": [("cancel", "victim", CLOCK.value), ("cancel", "victim", EVENT.value)],
        "moves": [("set", "victim", NOW + 500, CLOCK.value)],
        "again": [("set", "again", 1, CLOCK.value)],
    }

    def process_record(self, ctx: Any, record: Any) -> None:
        for step in record.value:
            self.do(ctx, *step)
        ctx.produce("out", {"key": ctx.key, "record": record.timestamp, "behind": self.fired.get()})

    def process_timer(self, ctx: Any, timer: Any) -> None:
        self.fired.set(self.fired.get() + 1)
        ctx.produce(
            "out",
            {
                "key": ctx.key,
                "timer": timer.tag,
                "at": timer.at - NOW if timer.at > NOW else timer.at,
            },
        )
        for step in self.on_timer.get(timer.tag, ()):
            self.do(ctx, *step)

    def do(self, ctx: Any, what: str, tag: str = "", *of: Any) -> None:
        if what == "raise":
            raise ValueError("as asked")
        if what == "cancel":
            ctx.cancel_timer(tag, Domain(of[0]))
        else:
            ctx.set_timer(tag, of[0], *[Domain(domain) for domain in of[1:]])


class Bench(ShardBench):
    """``hits`` are one delivery: records of a key as (time, steps)."""

    def __init__(self, ordered: bool = False, most: int = 5_000) -> None:
        work = computation(callback="bench:It", ordered=ordered, max_attempts=2)
        super().__init__(Timers, Dial(), ShardLimits(timers=most), pipeline(work))
        self.number = 1

    def hits(self, *hits: tuple[int, Any], broken: bool = False) -> None:
        rows = [("k", steps, at) for at, steps in hits]
        rows += [("other", [("raise",)], rows[0][2])] if broken else []
        self.deliver(*rows, first=self.number)
        self.number += len(rows)

    def told(self) -> list[Any]:
        rows = [row for row in self.through() if row["key"] == "k"]
        return [row["timer"] if "timer" in row else (row["record"], row["behind"]) for row in rows]


both = pytest.mark.parametrize("broken", [False, True], ids=["fast", "beside a record that fails"])


def clock(tag: str, at: int) -> tuple[Any, ...]:
    return ("set", tag, NOW + at, CLOCK.value)


@both
def test_a_record_moves_or_cancels_a_wall_clock_timer_that_is_due(broken: bool) -> None:
    for step, at_once, later in (
        (clock("t", 50), [], ["t"]),
        (("cancel", "t", CLOCK.value), [], []),
    ):
        bench = Bench()
        bench.hits((1, [clock("t", 10)]))
        assert bench.told() == [(1, 0)]
        bench.clock.now += 11
        bench.hits((2, [step]), broken=broken)
        assert bench.told() == [(2, 0), *at_once]
        bench.clock.now += 100
        assert bench.told() == later


@both
def test_what_a_failing_record_did_to_a_timer_that_is_due_never_happened(broken: bool) -> None:
    for step in (clock("t", 50), ("cancel", "t", CLOCK.value)):
        bench = Bench()
        bench.hits((1, [clock("t", 10)]))
        bench.told()
        bench.clock.now += 11
        bench.hits((2, [step, ("raise",)]), broken=broken)
        assert bench.told() == ["t"]
        bench.clock.now += 100
        assert bench.told() == []


@both
def test_a_timer_moves_or_cancels_others_that_are_due_with_it(broken: bool) -> None:
    for first, then, later in (("kills", [], []), ("moves", [], ["victim"])):
        bench = Bench()
        bench.hits((1, [clock(first, 10), clock("victim", 20)]))
        bench.told()
        bench.clock.now += 100
        bench.hits((2, []), broken=broken)
        assert bench.told() == [(2, 0), first, *then]
        bench.clock.now += 1000
        assert bench.told() == later


@both
def test_an_event_time_timer_cancels_one_that_is_due_with_it(broken: bool) -> None:
    bench = Bench()
    bench.hits((1, [("set", "kills", 10), ("set", "victim", 20), clock("victim", 5)]))
    bench.told()
    bench.clock.now += 100
    bench.watermark(100)
    bench.hits((100, []), broken=broken)
    assert bench.told() == ["kills", (100, 1)]


@both
@pytest.mark.parametrize("ordered", [False, True])
def test_timers_that_timers_set_come_before_the_records_however_far_the_watermark_jumps(
    ordered: bool, broken: bool
) -> None:
    told = []
    for steps in ([100], [11, 21, 31, 100]):
        bench = Bench(ordered)
        bench.hits((1, [("set", "chain", 10), ("set", "back", 40)]))
        found = bench.told()
        for watermark in steps[:-1]:
            bench.watermark(watermark)
            found += bench.told()
        bench.watermark(100)
        bench.hits((100, []), broken=broken)
        found += bench.told()
        bench.watermark(101)
        told.append(found + bench.told())
    assert told == [[(1, 0), "chain", "next", "last", "back", "past", (100, 5)]] * 2


@both
def test_a_timer_for_a_time_already_passed_fires_before_the_next_record(broken: bool) -> None:
    bench = Bench()
    bench.watermark(100)
    bench.hits((101, [("set", "t", 50)]), (102, [("cancel", "t", EVENT.value)]), broken=broken)
    assert bench.told() == [(101, 0), "t", (102, 1)]


@both
@pytest.mark.parametrize("ordered", [False, True])
def test_no_record_comes_before_the_timers_that_were_due_however_many_they_are(
    ordered: bool, broken: bool
) -> None:
    bench = Bench(ordered, most=10)
    bench.hits((1, [("set", f"t{number}", 50) for number in range(35)]))
    bench.watermark(2)
    assert bench.told() == [(1, 0)]
    bench.watermark(100)
    bench.hits((100, []), broken=broken)
    bench.run()
    bench.watermark(101)
    told = bench.told()
    assert told[-1] == (100, 35)
    assert len(told) == 36


def test_records_behind_the_watermark_come_in_their_order_one_by_one_or_together() -> None:
    told = []
    for deliveries in (
        [[(9, []), (3, []), (105, []), (5, [])]],
        [[(9, [])], [(3, [])], [(105, [])], [(5, [])]],
    ):
        bench = Bench(ordered=True)
        bench.watermark(100)
        found = []
        for hits in deliveries:
            bench.hits(*hits)
            found += bench.told()
        bench.watermark(200)
        told.append(found + bench.told())
    assert told == [[(9, 0), (3, 0), (5, 0), (105, 0)]] * 2


def test_a_wall_clock_timer_that_always_sets_itself_stops_no_other() -> None:
    bench = Bench()
    bench.hits((1, [clock("again", 5), clock("other", 6)]))
    bench.told()
    bench.clock.now += 10
    bench.shard.run(bench.now)
    bench.shard.run(bench.now)
    timers = [tag for _, tag, _ in bench.shard._timers[CLOCK].items()]
    assert timers == ["again"]


@pytest.mark.parametrize("at", [1.5, "soon"])
def test_a_timer_without_a_possible_time_is_the_failure_of_its_record(at: Any) -> None:
    bench = Bench()
    bench.hits((1, [("set", "t", at)]), (2, []))
    assert bench.told() == [(2, 0)]
    assert len(bench.letters) == 1


def test_the_letter_of_a_timer_does_not_tell_its_cause() -> None:
    """The cause of a weak production names channels: the letter would depend on how many shards
    there are."""

    class Failing(Computation):
        def process_record(self, ctx: Any, record: Any) -> None:
            ctx.set_timer("fail", 10)

        def process_timer(self, ctx: Any, timer: Any) -> None:
            raise ValueError("as asked")

    bench = ShardBench(Failing, Dial(productions=Productions.WEAK, max_attempts=1))
    bench.deliver(("ann", 1, 5))
    bench.through()
    bench.shard.watermark.input = 20
    bench.through()
    [letter] = bench.letters
    assert letter["value"] == "Timer(key='ann', tag='fail', at=10, domain=event)"


def test_records_that_wait_are_no_timers_of_the_user() -> None:
    bench = Bench(ordered=True)
    bench.hits(*[(at, [("set", "t", 10**7)]) for at in range(11_000)])
    bench.told()
    bench.watermark(10**6)
    assert len(bench.told()) == 11_000
    assert bench.letters == []
    assert list(bench.shard._timers[EVENT].items()) == [("k", "t", 10**7)]


def test_a_timer_may_cancel_and_move_those_that_come_due_with_it(tmp_path: Path) -> None:
    (tmp_path / "bells.py").write_text(
        "from millwheel import Computation\n\n\n"
        "class Bells(Computation):\n"
        "    def process_record(self, ctx, record):\n"
        "        for tag in 'abc':\n"
        "            ctx.set_timer(tag, record.timestamp + ord(tag) - ord('a'))\n\n"
        "    def process_timer(self, ctx, timer):\n"
        "        ctx.produce('rung', [timer.tag, timer.at])\n"
        "        if timer.tag == 'a':\n"
        "            ctx.cancel_timer('b')\n"
        "            ctx.set_timer('c', 50)\n"
    )
    text = (
        HEAD
        + "computations:\n  ring: {input: {hits: {key: user}}, callback: 'bells:Bells', output:"
        " rung}\n"
    )
    (tmp_path / "pipeline.yaml").write_text(text)
    with PipelineHarness(tmp_path / "pipeline.yaml") as harness:
        harness.push("hits", hit(10))
        harness.advance_watermark(40)
        assert harness.read("rung") == [["a", 10]]
        harness.advance_watermark(51)
        assert harness.read("rung") == [["a", 10], ["c", 50]]
