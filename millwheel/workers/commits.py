"""Commits on their way to the journal: one group for all shards of a step, completed in the order of submission."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from millwheel.workers.ports import GroupCommits
from millwheel.workers.prepared import Prepared
from millwheel.workers.shard import Shard
from millwheel.workers.snapshots import SnapshotPolicy

Complete = Callable[[list[Prepared], int], None]
"""(commits that are durable, the wall clock in µs)."""


class CommitGroups:
    """Groups that were handed to the journal and wait to be durable. ``complete`` is told of each, in order."""

    def __init__(self, journal: GroupCommits, snapshots: SnapshotPolicy, complete: Complete) -> None:
        self._journal = journal
        self._snapshots = snapshots
        self._complete = complete
        self._waiting: deque[tuple[bool, list[Prepared]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def submit(self, shards: Iterable[Shard], now: int) -> None:
        """Hand over what the shards have made since the last call. With nothing on its way before it, a small group
        may be durable when this returns."""
        group: list[Prepared] = []
        entries: list[bytes] = []
        for shard in shards:
            for prepared, entry in shard.submittable(now):
                group.append(prepared)
                if entry:
                    entries.append(entry)
                    self._snapshots.journaled(shard, len(entry))
        if entries:
            segment = None if self._waiting else self._journal.write_now(entries)
            self._waiting.append((True, group))
            if segment is None:
                self._journal.submit(entries)
            else:
                self.durable(segment, now)
        elif group:
            self._waiting.append((False, group))
            self._settle_unwritten(now)

    def durable(self, segment: int, now: int) -> None:
        """The oldest group that was written is durable."""
        _, group = self._waiting.popleft()
        for prepared in group:
            self._snapshots.written(segment, prepared)
        self._complete(group, now)
        self._settle_unwritten(now)

    def _settle_unwritten(self, now: int) -> None:
        """Groups without entries are as durable as the groups before them."""
        while self._waiting and not self._waiting[0][0]:
            self._complete(self._waiting.popleft()[1], now)
