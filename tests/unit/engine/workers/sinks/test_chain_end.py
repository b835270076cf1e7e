"""What is gathered for a sink behind the chain of a source waits for its batch, and no longer."""

from __future__ import annotations

import pytest

from millwheel.core.model.records import DeadLetter
from millwheel.core.model.times import MAX_TIME, held_at
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.sinks.chain_end import ChainEnd, former_sink
from millwheel.engine.workers.state.overlay import Overlay
from tests.unit.engine.workers.sinks.sink_bench import Bench


class Waiting:
    """What is gathered for a sink on a bench: batches of 10 records at most, after 100 µs."""

    def __init__(self, aside: bool = False) -> None:
        self.bench = Bench(aside)
        self.bench.operator.flush_us = 100
        self.end = ChainEnd("out", self.bench.operator, takes=True)
        self.read: list[int] = []

    def bundle(self, now_us: int, count: int = 0, urgent: bool = False, size: int = 100) -> Bundle:
        """A bundle that reads so many records, and its commit."""
        self.bench.number += 1
        overlay = Overlay(self.bench.store)
        made = Bundle(self.bench.number, now_us, 0, [], overlay, {})
        for number in range(count):
            made.outputs.produce("out", "k", number, 500 + number)
        if count:
            made.dead_letter(DeadLetter("p", "a", "raw", "no record"), 400)
            self.end.take(made, size, lambda bundle: self.read.append(count))
        bundle = Bundle(self.bench.number, now_us, 0, [], overlay, {}, positions_only=True)
        self.end.run(bundle, urgent)
        self.bench.store.apply(*overlay.take())
        return bundle


def test_what_is_gathered_waits_until_its_time_has_come_and_is_committed_together() -> None:
    waiting = Waiting()
    first = waiting.bundle(0, count=2)
    assert (first.outputs.count, first.positions_only, waiting.read) == (0, True, [])
    assert waiting.end.wakes_at(0, False) == 100
    waiting.bundle(50, count=3)
    assert waiting.end.hold(50).at == held_at(400)
    assert "next batch of sink.out" in waiting.end.hold(50).holder
    last = waiting.bundle(100)
    assert (waiting.read, last.positions_only, last.outputs.lengths()) == (
        [2, 3],
        False,
        {"dead_letters": 2},
    )
    assert last.counters["chained\0sink.out\0records_out"] == 5
    assert (waiting.bench.committables(), former_sink(waiting.bench.store)) == (1, "out")
    assert waiting.end.hold(100).at == 500
    waiting.bench.durable(3)
    assert [each.count(b",") for each in waiting.bench.writer.published] == [4]
    assert waiting.end.hold(100).at == MAX_TIME


@pytest.mark.parametrize(("count", "urgent"), [(10, False), (1, True)])
def test_a_full_batch_or_the_end_of_the_input_waits_for_nothing(count: int, urgent: bool) -> None:
    waiting = Waiting()
    waiting.bundle(0, count, urgent)
    assert waiting.read == [count]
    assert waiting.end.wakes_at(0, urgent) == MAX_TIME


def test_large_records_fill_a_batch_long_before_there_are_many() -> None:
    waiting = Waiting()
    waiting.bundle(0, 1, size=60 << 20)
    assert (waiting.end.full, waiting.read) == (False, [])
    waiting.bundle(1, 1, size=60 << 20)
    assert waiting.read == [1, 1]


def test_no_more_is_read_while_a_full_batch_cannot_begin() -> None:
    waiting = Waiting(aside=True)
    for number in range(3):
        assert not waiting.end.full
        waiting.bundle(number, count=10)
    assert waiting.end.full
    assert (waiting.read, waiting.end.wakes_at(9, False)) == ([10, 10], MAX_TIME)
    waiting.bench.durable(2)
    waiting.bench.answers()
    assert waiting.end.wakes_at(9, False) == 0
    waiting.bundle(9)
    assert waiting.read == [10, 10, 10]


def test_at_rest_batches_are_unfinished_until_they_are_forgotten() -> None:
    waiting = Waiting()
    waiting.bundle(0, 1, urgent=True)
    assert waiting.end.unfinished() == 1
    waiting.bench.durable(1)
    assert (waiting.end.unfinished(), waiting.end.wakes_at(0, False)) == (0, MAX_TIME)
    waiting.end.rest(True, 0)
    assert (waiting.end.unfinished(), waiting.end.wakes_at(0, True)) == (1, 0)
    waiting.bundle(0)
    assert (waiting.end.unfinished(), waiting.bench.committables()) == (0, 0)
    assert former_sink(waiting.bench.store) == ""
