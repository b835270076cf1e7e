"""When shards are snapshotted, and which journal segments are superfluous then.

A checkpoint is taken between two bundles, so it ends exactly with the last commit made; it is
published once that commit is durable, and never before. A segment may go when every shard that
wrote to it has a newer snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millwheel.core.model.lease import Lease
from millwheel.core.model.names import ShardName, Token
from millwheel.core.model.range_table import Ancestor
from millwheel.core.model.times import SECOND
from millwheel.engine.workers.ports import Segments, SnapshotQueue
from millwheel.engine.workers.shard.in_flight import PendingCommit
from millwheel.engine.workers.shard.shard import Shard
from millwheel.errors import InvariantError, invariant


@dataclass(frozen=True, slots=True)
class SnapshotPace:
    """A shard is snapshotted after a number of bytes of commits, or after a time (µs) if there were
    any. A small one (of up to ``small_bytes``) also is after so many ``commits``, but not sooner
    than ``often_us`` after the last time: its next owner would replay them all. One that was
    recovered from the journal of the dead is already after ``recovered_us``, and at once if
    ``replayed_bytes`` or more had to be replayed, or if it has ``ancestors`` or more: where owners
    die faster than that, every one would replay it all again, and look into one journal more than
    the one before. A snapshot that failed is tried again after ``retry_us``."""

    bytes: int = 32 << 20
    age_us: int = 30 * SECOND
    commits: int = 1_000
    often_us: int = 10 * SECOND
    small_bytes: int = 1 << 20
    recovered_us: int = 3 * SECOND
    replayed_bytes: int = 128 << 10
    ancestors: int = 16
    retry_us: int = 5 * SECOND


@dataclass(slots=True)
class _Shard:
    """``covered`` is the last commit in a published snapshot, ``taken`` the last one in a
    checkpoint, ``begun`` the same or that with which the shard was opened. ``inherited``: former
    owners' journals are kept until there is a snapshot, also of a shard that has never committed
    anything."""

    token: Token
    covered: int
    since_us: int
    inherited: bool
    begun: int
    journaled: int = 0
    taken: int = -1
    path: str = ""
    submitted: bool = False
    not_before_us: int = 0


class SnapshotPolicy:
    """Decides for all shards of a worker. One checkpoint is in progress at a time."""

    def __init__(
        self, queue: SnapshotQueue, journal: Segments, pace: SnapshotPace | None = None
    ) -> None:
        self._pace = pace or SnapshotPace()
        self._queue = queue
        self._journal = journal
        self._shards: dict[str, _Shard] = {}
        self._covered: dict[str, int] = {}
        self._contents: dict[int, dict[str, int]] = {}
        self._busy = ""
        self._newest = 0

    def opened(
        self, shard: Shard, now_us: int, lineage: Sequence[Ancestor] = (), replayed: int = 0
    ) -> None:
        """Add a shard that is served here now. If it was recovered from older journals
        (``replayed`` bytes of them were its own), it needs a snapshot, soon if their owners died:
        until then the next owner would read them all again, and they cannot be deleted."""
        pace = self._pace
        costly = replayed >= pace.replayed_bytes or len(lineage) >= pace.ancestors
        wait_us = 0 if costly else min(pace.recovered_us, pace.age_us)
        died = any(ancestor.sealed_end >= 0 for ancestor in lineage)
        since_us = now_us - (pace.age_us - wait_us) if died else now_us
        self._shards[shard.identity.shard] = _Shard(
            shard.identity.token, -1, since_us, bool(lineage), shard.commits.made
        )

    def forget(self, shard: ShardName) -> None:
        """Forget a shard that left."""
        self._shards.pop(shard, None)
        if self._busy == shard:
            self._busy = ""

    def journaled(self, shard: Shard, size: int) -> None:
        """Count ``size`` bytes of a commit of ``shard`` for the journal."""
        self._shards[shard.identity.shard].journaled += size

    def written(self, segment: int, pending: PendingCommit) -> None:
        """Note the segment of the journal in which a commit lies."""
        self._newest = max(self._newest, segment)
        if pending.commit is not None:
            # The last one alone is kept of a segment: with it, a snapshot must have all others.
            before = self._contents.get(segment, {}).get(pending.shard.identity.shard, 0)
            if pending.number <= before:
                raise InvariantError(
                    f"segment {segment} has commit {pending.number} of"
                    f" {pending.shard.identity.shard} behind {before}"
                )
            self._contents.setdefault(segment, {})[pending.shard.identity.shard] = pending.number

    def covers(self, shard: Shard) -> bool:
        """True when a published snapshot holds every commit of the shard."""
        return (
            shard.commits.made == 0
            or self._shards[shard.identity.shard].covered >= shard.commits.made
        )

    def step(self, now_us: int, shards: Iterable[tuple[Shard, bool]]) -> None:
        """Take the next checkpoint that is due (at once for a leaving shard), and publish durable
        ones."""
        for shard, leaving in shards:
            name = shard.identity.shard
            state = self._shards[name]
            if not self._busy and self._due(shard, state, now_us, leaving):
                self._take(shard, state, now_us)
            # Not before its last commit is durable: a seal may cut that off, and the next owner
            # would have it from here.
            if state.path and not state.submitted and shard.commits.durable >= state.taken:
                state.submitted = True
                self._queue.publish(name, state.token, state.taken, state.path)

    def _due(self, shard: Shard, state: _Shard, now_us: int, leaving: bool) -> bool:
        nothing = -1 if state.inherited else 0
        if shard.commits.made <= max(state.covered, nothing) or now_us < state.not_before_us:
            return False
        if (
            leaving
            or state.journaled >= self._pace.bytes
            or now_us >= state.since_us + self._pace.age_us
        ):
            return True
        many = (
            shard.commits.made >= state.begun + self._pace.commits
            and now_us >= state.since_us + self._pace.often_us
        )
        return many and shard.store.size_bytes() <= self._pace.small_bytes

    def _take(self, shard: Shard, state: _Shard, now_us: int) -> None:
        name = shard.identity.shard
        # A checkpoint behind the last one would take the next owner back.
        invariant(
            shard.commits.made >= max(state.taken, shard.commits.durable),
            f"{name} is copied at commit {shard.commits.made}, behind {state.taken} or the"
            " durable commit",
        )
        state.path = self._queue.checkpoint_path(name, state.token, shard.commits.made)
        shard.checkpoint(state.path)
        state.taken = state.begun = shard.commits.made
        state.submitted, state.journaled, state.since_us = False, 0, now_us
        self._busy = name

    def published(self, name: str, token: Token, last_commit: int) -> None:
        """Note a published snapshot, and drop the segments that no shard needs any more. Only those
        below the newest reported one have all their contents recorded here."""
        state = self._shards.get(name)
        # A snapshot that an earlier ownership of ours had begun does not count for this one: only a
        # snapshot under our token lets the master forget our ancestors.
        if state is not None and Lease(state.token).admits(token):
            # A shard is released once it is covered: it must stay covered, or it would never leave.
            invariant(
                state.covered <= last_commit,
                f"a snapshot of {name} is published with commit {last_commit} behind one with"
                f" {state.covered}",
            )
            state.covered, state.path = last_commit, ""
        if self._busy == name:
            self._busy = ""
        self._covered[name] = max(last_commit, self._covered.get(name, 0))
        for segment in [segment for segment in self._journal.segments() if segment < self._newest]:
            contents = self._contents.get(segment, {})
            if all(self._covered.get(shard, -1) >= number for shard, number in contents.items()):
                self._contents.pop(segment, None)
                self._journal.delete_segment(segment)

    def failed(self, name: str, token: Token, now_us: int) -> None:
        """Try again later; the journal keeps everything meanwhile."""
        state = self._shards.get(name)
        if state is not None and Lease(state.token).admits(token):
            state.path, state.not_before_us = "", now_us + self._pace.retry_us
            state.journaled = max(state.journaled, self._pace.bytes)
        if self._busy == name:
            self._busy = ""
