"""Commits between their bundles and the journal: one group for all shards of a step, completed in
the order of submission. Pure: the caller writes the groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from millwheel.core.formats.codec import FULL_STOP
from millwheel.core.model.names import ShardName
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.effects import CommitGroup
from millwheel.engine.workers.loop.snapshots import SnapshotPolicy
from millwheel.engine.workers.shard.in_flight import PendingCommit
from millwheel.engine.workers.shard.shard import Shard
from millwheel.errors import InvariantError

LONGEST_US = 50_000
"""Commits are handed to the journal after this much work (µs), even within a step."""

QUIET_US = 100_000
"""Once no commit has followed the newest group for this time (µs), a full stop does, where standbys
follow."""

Complete = Callable[[list[PendingCommit], int], None]
"""(commits that are durable, the wall clock in µs)."""


class CommitGroups:
    """The groups in the journal that are not yet durable, ``waiting``. ``complete`` is called for
    each, in order. ``due_at`` is the wall clock at which the next group is due. ``followed``:
    whether standbys follow shards of this worker. They apply only what is certain, and the newest
    group is not: without a full stop they would lack it while no other comes."""

    def __init__(
        self,
        snapshots: SnapshotPolicy,
        complete: Complete,
        longest_us: int = LONGEST_US,
        followed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._snapshots = snapshots
        self._complete = complete
        self._longest_us = longest_us
        self._followed = followed
        self._stops_at_us = MAX_TIME
        self._worked_us = 0
        self.waiting = deque[tuple[bool, list[PendingCommit]]]()
        self.due_at_us = MAX_TIME

    def submit(
        self, shards: Sequence[Shard], now_us: int, at_once: bool = False
    ) -> CommitGroup | None:
        """The group to write: all commits of the shards, once any of them is due, or ``at_once``.
        It counts as in flight from now on."""
        self._worked_us = 0
        due, group = _due_at(shards), None
        if due <= now_us or at_once:
            group = self._submit(shards, now_us, inline=not due)
            due = _due_at(shards)
        if group is None and not at_once and self._stops_at_us <= now_us:
            group = self._full_stop()
        self.due_at_us = min(due, self._stops_at_us)
        return group

    def _full_stop(self) -> CommitGroup | None:
        self._stops_at_us = MAX_TIME
        if self.waiting:
            return None
        self.waiting.append((True, []))
        return CommitGroup([FULL_STOP], [], {}, False)

    def submit_after(
        self, took_us: int, shards: Callable[[], Sequence[Shard]], now_us: int
    ) -> CommitGroup | None:
        """Submit after a bundle, if its step is long: the commits that all shards have made so far
        are written while the next shards run their bundles, and are not lost if the process is
        killed meanwhile.

        All shards, because a bundle rests on those before it, of any shard: a group holds them all,
        or the groups before it do."""
        self._worked_us += took_us
        return self.submit(shards(), now_us) if self._worked_us >= self._longest_us else None

    def _submit(self, shards: Sequence[Shard], now_us: int, inline: bool) -> CommitGroup | None:
        group: list[PendingCommit] = []
        entries: list[bytes] = []
        last: dict[ShardName, int] = {}
        for shard in shards:
            for pending, entry in shard.commits.submittable(now_us):
                group.append(pending)
                last[shard.identity.shard] = pending.number
                if entry:
                    entries.append(entry)
                    self._snapshots.journaled(shard, len(entry))
        if entries:
            alone = not self.waiting
            self.waiting.append((True, group))
            return CommitGroup(entries, group, last, inline and alone)
        if group:
            self.waiting.append((False, group))
            self._settle_unwritten(now_us)
        return None

    def durable(self, segment: int, now_us: int) -> None:
        """Complete the oldest group that was written: it is durable."""
        # The journal answers in the order of its groups: an answer too many stands for another one.
        if not self.waiting:
            raise InvariantError("the journal has a group, but none waits for it")
        written, group = self.waiting.popleft()
        # Its acks would leave for commits that rest on one that is not in the journal yet.
        if not written:
            raise InvariantError("the journal has a group that was not given to it")
        if group:
            for pending in group:
                self._snapshots.written(segment, pending)
            self._complete(group, now_us)
            if self._followed():
                self._stops_at_us = now_us + QUIET_US
                self.due_at_us = min(self.due_at_us, self._stops_at_us)
        self._settle_unwritten(now_us)

    def _settle_unwritten(self, now_us: int) -> None:
        """Complete groups without entries, which are as durable as the groups before them."""
        while self.waiting and not self.waiting[0][0]:
            self._complete(self.waiting.popleft()[1], now_us)


def _due_at(shards: Sequence[Shard]) -> int:
    commits = [shard.commits for shard in shards if shard.commits.unsubmitted]
    return min([each.submits_at() for each in commits], default=MAX_TIME)
