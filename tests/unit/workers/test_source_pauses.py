"""How often a source that has nothing to say is looked at, and how its silence moves its watermark."""

from __future__ import annotations

from typing import Any

from millwheel.core.spec import SourceSpec, StreamSpec
from millwheel.core.times import SECOND, idle_progress
from millwheel.sources.base import Chunk, Partition
from millwheel.workers.overlay import Overlay
from millwheel.workers.source import SourceOperator
from millwheel.workers.source_parts import SourceParts
from millwheel.workers.turn import Turn
from tests.fakes.plain_storage import SimStore

POLL_US = 20_000


class Silent:
    """A followed file that nobody writes to; it remembers how often it was read."""

    bounded = False
    poll_us = POLL_US

    def __init__(self) -> None:
        self.reads = 0

    def open(self, partition: Partition) -> Silent:
        return self

    def read(self, position: int, max_records: int) -> Chunk:
        self.reads += 1
        return Chunk([], [], position)

    def close(self) -> None: ...


def source(silent: Silent) -> SourceOperator:
    stream = StreamSpec("s", SourceSpec("files", {}), timestamp="ts")
    nobody: Any = None
    partitions = [Partition("a")]
    parts = SourceParts(
        "p", "source.s", stream, silent, lambda: partitions, lambda name: True, fanout=nobody, timestamps=nobody
    )
    return SourceOperator(parts, SimStore({}), 0)


def test_a_partition_is_looked_at_less_often_when_it_has_been_silent_for_long() -> None:
    silent = Silent()
    operator = source(silent)
    store = SimStore({})
    reads: dict[int, int] = {}
    for now in range(0, 20 * SECOND, 10_000):
        if operator.wakes_at(now) <= now:
            operator.run(Turn(1, now, 0, [], Overlay(store), {}))
        reads[now // SECOND] = silent.reads
    assert reads[0] == 50
    assert reads[19] - reads[18] == 10


def test_silence_moves_the_watermark_in_small_steps_first_and_always_forward() -> None:
    heard = [idle_progress(silent) for silent in range(0, 30 * SECOND, 50_000)]
    assert heard == sorted(heard)
    assert heard[-1] == 29 * SECOND
    assert len(set(heard)) == 20 * 4 + 10
