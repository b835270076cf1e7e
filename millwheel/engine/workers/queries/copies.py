"""Answers for shards of other workers, from the stores that follow them here, or from their newest
snapshots.

Such a store holds only commits that every later owner will have, so an answer may be old and is
never wrong. It is marked: its consistency is ``standby``, and it has the number of its commit and
the time since the owner's journal was read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millwheel.adapters.ports import StateStore
from millwheel.core.model.names import ShardName, Token
from millwheel.core.model.times import MIN_TIME
from millwheel.engine.queries.model import Answer, Consistency, Query
from millwheel.engine.workers.queries.snapshots import SnapshotCopies
from millwheel.engine.workers.queries.store_answers import Answers
from millwheel.engine.workers.recovery.following import Follower, Standbys
from millwheel.engine.workers.shard.opening import read_meta


@dataclass(frozen=True, slots=True)
class FollowedCopies:
    """The followers of this worker, which answer first, and snapshots for queries that accept them.
    For the thread of the loop."""

    standbys: Standbys
    answers: Answers
    monotonic_us: Callable[[], int]
    snapshots: SnapshotCopies | None = None

    def answer(self, shard: ShardName, query: Query) -> Answer | None:
        """The answer of a shard that is followed here, or can be opened; None for any other. Raises
        QueryError."""
        follower = self.standbys.follower(shard)
        if follower is not None:
            with follower.lock:  # others hold it for one commit at most
                if not follower.over:
                    return self._followed(follower, query)
        if query.consistency is not Consistency.SNAPSHOT or self.snapshots is None:
            return None
        with self.snapshots.lock:
            opened = self.snapshots.asked(shard)
            return self._answer(query, opened.store, shard, opened.manifest.token, None)

    def _followed(self, follower: Follower, query: Query) -> Answer:
        seen_us = follower.seen_us
        lag_us = None if seen_us is None else max(self.monotonic_us() - seen_us, 0)
        return self._answer(
            query, follower.store, follower.entry.shard, follower.entry.token, lag_us
        )

    def _answer(
        self, query: Query, store: StateStore, shard: ShardName, token: Token, lag_us: int | None
    ) -> Answer:
        meta = read_meta(store)
        watermark_us = max(meta.watermark, MIN_TIME)
        finding = self.answers(query, store, watermark_us)
        return Answer(
            finding.values,
            finding.covered_start_us,
            finding.covered_end_us,
            watermark_us,
            finding.complete,
            shard,
            token,
            meta.number,
            Consistency.STANDBY,
            lag_us,
        )
