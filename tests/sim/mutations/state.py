"""Deliberate mistakes in state."""

from __future__ import annotations

from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME
from millwheel.workers.shard import seen_ids
from millwheel.workers.shard.commit_building import CommitBuilding
from millwheel.workers.shard.seen_ids import SeenIds
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=20)
def timers_not_stored() -> Context:
    """Timers live in memory only."""

    def wrong(self: CommitBuilding) -> None:
        for queue in self.timers.values():
            queue.take_changes()

    return replaced(CommitBuilding, "_write_timers", wrong)


@mistake(within=20, workload="windows")
def timers_fire_early() -> Context:
    """A timer fires a moment before the watermark has passed it."""
    right = TimerQueue.pop_due
    return replaced(TimerQueue, "pop_due", lambda self, clock: right(self, min(MAX_TIME, clock + 1_000_000)))


@mistake(within=20)
def duplicates_trusted_to_the_filter() -> Context:
    """An id that the Bloom filter may have seen is dropped without a look at the exact set."""

    def wrong(self: SeenIds, marks: list[bytes], digests: list[bytes]) -> set[bytes]:
        low, high = seen_ids._words(digests)
        return {
            marks[number]
            for bloom in self._filters.values()
            for number, (maybe, word) in enumerate(zip(bloom.maybe(low, high).tolist(), low.tolist(), strict=True))
            if maybe or word % 16 == 0  # a filter that is crowded
        }

    return replaced(SeenIds, "_seen_before", wrong)


@mistake(within=20)
def ids_not_remembered() -> Context:
    """External ids are not marked in the commit."""
    return replaced(SeenIds, "fresh", lambda self, batch: list(range(len(batch))))
