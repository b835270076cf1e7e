"""Deliberate mistakes in state."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state.columns_to_rows import Leaving, Left
from millwheel.core.formats.id_runs import MARK, Marks, Words, marks_from
from millwheel.core.formats.store_layout import RUNS
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.operators.callback_context import TimerChains
from millwheel.engine.workers.shard import seen_ids
from millwheel.engine.workers.shard.bloom_filter import BitsOf
from millwheel.engine.workers.shard.commit_building import CommitBuilding
from millwheel.engine.workers.shard.seen_ids import SeenIds
from millwheel.engine.workers.state.runs import Runs
from millwheel.errors import EndlessTimerError
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=20, first=2)
def timers_not_stored() -> Context:
    """Timers live in memory only."""

    def wrong(self: CommitBuilding) -> None:
        for queue in self.timers.values():
            queue.take_changes()

    return replaced(CommitBuilding, "_write_timers", wrong)


@mistake(within=10, workload="hot")
def moved_timers_are_looked_for_at_their_former_time() -> Context:
    """Where the next timer is moved or cancelled, its former time stays that of the next one."""
    right = TimerQueue._find_earliest

    def wrong(self: TimerQueue) -> None:
        if not self._heap or self._at.get(self._heap[0][3]) == self._heap[0][0]:
            right(self)

    return replaced(TimerQueue, "_find_earliest", wrong)


@mistake(within=20, workload="windows")
def timers_fire_early() -> Context:
    """A timer fires a moment before the watermark has passed it."""
    right = TimerQueue.pop_due
    return replaced(
        TimerQueue, "pop_due", lambda self, clock: right(self, min(MAX_TIME, clock + 1_000_000))
    )


@mistake(within=20)
def duplicates_trusted_to_the_filter() -> Context:
    """An id that the Bloom filter may have seen is dropped without a look at the exact set."""

    def wrong(self: SeenIds, marks: Marks, low: Words, high: Words) -> seen_ids.Bools:
        found = self._few.contains(low, high)
        for bucket in self._apart.values():
            found[bucket.maybe(BitsOf(low, high))] = True
        # a filter that is crowded
        return found | (low % np.uint64(16) == 0) if self._buckets else found

    return replaced(SeenIds, "_seen_before", wrong)


@mistake(within=2, first=47501)
def heads_turned_round() -> Context:
    """When runs of ids become one, the bytes of the hashes of keys are turned round, and successors
    get the wrong ids."""
    right = Runs.write

    def wrong(self: Runs, rows: bytes) -> None:
        right(self, rows)
        for store_key, value in list(self._overlay._changes.items()):
            # one of eight
            if value is not None and store_key[:1] == RUNS and len(value) == 8 * MARK.itemsize:
                marks = marks_from(value).copy()
                marks["head"] = marks["head"].byteswap()
                self._overlay._changes[store_key] = marks.tobytes()

    return replaced(Runs, "write", wrong)


@mistake(within=20)
def ids_not_remembered() -> Context:
    """External ids are not marked in the commit."""
    return replaced(SeenIds, "fresh", lambda self, batch: np.ones(len(batch), np.bool_))


@mistake(within=5, faults="none", workload="crowded")
def all_that_columns_hold_leaves_at_once() -> Context:
    """From the first value that columns cannot hold, everything goes on in rows in the same
    bundle."""

    def wrong(self: Leaving) -> list[Left]:
        return self.taken_out([segment.groups[KEY].unique() for segment in self._held.segments()])

    return replaced(Leaving, "next_part", wrong)


@mistake(within=20, faults="kill kill-again", workload="ringing")
def each_owner_counts_timers_without_end_anew() -> Context:
    """How often timers have set timers after the end is kept in memory."""

    def wrong(self: TimerChains, key: Any, tag: str) -> None:
        counts = vars(self).setdefault("counts", Counter())
        counts[key] += self._bundle is not None and self._bundle.watermark == MAX_TIME
        if counts[key] > self._most:
            raise EndlessTimerError("for ever")

    return replaced(TimerChains, "add", wrong)
