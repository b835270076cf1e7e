from __future__ import annotations

from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME
from millwheel.workers.bundle.bundle import Bundle, Hold
from millwheel.workers.delivery.outbox import OutputChunk
from millwheel.workers.shard.step import Step
from millwheel.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore


def chunk(at: int) -> OutputChunk:
    return OutputChunk(1, "c", [("t", Batch("s", [1], [at], ["a"], [1]))], at)


def step(hold: int, made: OutputChunk | None, *reads: OutputChunk) -> Step:
    queues = {domain: TimerQueue(domain) for domain in Domain}
    bundle = Bundle(1, 0, 0, [], Overlay(SimStore({})), queues)
    bundle.chunks += reads
    return Step(bundle, [], Hold(hold, "input"), 0, made, asks=False)


def test_a_step_that_waits_keeps_the_watermark_at_the_earliest_of_all_that_it_has_made() -> None:
    """Nothing of it is on its way yet, so nothing else holds it."""
    assert step(50, None).kept().at == 50
    assert step(50, chunk(40)).kept().at == 40
    assert step(50, chunk(60), chunk(30)).kept().at == 30
    assert step(MAX_TIME, chunk(60)).kept().at == 60
    assert "verdict" in step(50, None).kept().holder
