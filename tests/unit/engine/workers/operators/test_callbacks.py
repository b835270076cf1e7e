"""Which timers fire, and what they see, is not decided by what else there is in their bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel import Computation
from millwheel.core.pipeline.spec import Productions
from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.bench import Dial, ShardBench
from tests.unit.engine.workers.operators.combinations import HEAD, hit
from tests.unit.engine.workers.operators.timer_bench import CLOCK, Bench, both, clock


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
