"""Makes one commit of a step's changes: numbered, applied to the local store, and ready for the
journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millwheel.adapters.ports import StateStore
from millwheel.core.formats.codec import Commit
from millwheel.core.formats.store_layout import (
    CHANNEL,
    META,
    PENDING,
    Meta,
    encode_meta,
    number8,
    timer_key,
    timer_value,
)
from millwheel.core.model.failures import MOST_COUNTED, counted
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.delivery.high_water_marks import AppliedHighWaterMarks
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.delivery.outbox import Outbox, OutputChunk
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.shard.in_flight import InFlight, PendingCommit, Step
from millwheel.engine.workers.shard.productions import ShardIdentity
from millwheel.engine.workers.shard.watermark import ShardWatermark
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.waiting_records import ORDER_TAG
from millwheel.errors import InvariantError

if TYPE_CHECKING:
    from millwheel.engine.workers.shard.shard import Shard


@dataclass(frozen=True, slots=True)
class CommitBuilding:
    """Writes into the ``store``: this is where a shard stops being pure. Any failure in here is
    between two commits, since the store takes a commit whole or not at all."""

    shard: Shard
    identity: ShardIdentity
    limits: ShardLimits
    store: StateStore
    overlay: Overlay
    meta: Meta
    timers: dict[Domain, TimerQueue]
    applied: AppliedHighWaterMarks
    outbox: Outbox
    commits: InFlight
    watermark: ShardWatermark

    def build(self, step: Step) -> PendingCommit | None:
        """The commit of a step, applied to the store and enlisted; None when there is nothing to
        write and nothing to ack."""
        bundle, chunk = step.bundle, step.chunk
        self._write_timers()
        self._write_high_water_marks(step.arrivals)
        rises = self.watermark.has_floor and self.watermark.commit_floor(step.hold.at)
        read_again = bundle.positions_only and not bundle.commit_before_sending
        write_by_us = (
            bundle.now_us + self.limits.gather_us if self.identity.weak or read_again else 0
        )
        reads = bundle.chunks if bundle.commit_before_sending else []
        if self._changes_nothing(chunk, bundle, rises):
            if not step.arrivals:
                return None
            # Its acks still wait for the commits before it: the change of these records may have
            # been made by a record of a commit that is not durable yet.
            return self.commits.enlist(
                PendingCommit(
                    self.shard,
                    self.commits.made,
                    None,
                    step.arrivals,
                    None,
                    step.hold,
                    work_us=step.work_us,
                    write_by_us=write_by_us,
                    reads=reads,
                )
            )
        commit = self._apply(bundle)
        return self.commits.enlist(
            PendingCommit(
                self.shard,
                self.meta.number,
                commit,
                step.arrivals,
                chunk,
                # consumers have it all: to read it again changes nothing
                Hold() if read_again else step.hold,
                work_us=step.work_us,
                weak=self.identity.weak and chunk is not None,
                since_us=bundle.now_us,
                write_by_us=write_by_us,
                floor=self.meta.floor,
                reads=reads,
            )
        )

    def forget_done(self) -> None:
        """Delete productions that every consumer has applied from the store."""
        # With the next commit and not before: were they deleted at the ack, a crash could bring the
        # commit back that made them, and not its deletion; were they never deleted, each recovery
        # would send all of them again.
        for chunk in self.outbox.take_done():
            # Some consumer may not have it: deleted, it would not be sent again after a crash.
            if chunk.open_parts or not chunk.finished:
                raise InvariantError(
                    f"{self.identity.shard}: {chunk.channel}#{chunk.number} is to be deleted, but"
                    f" waits for {chunk.open_parts} acks"
                )
            if chunk.stored:
                self.overlay.delete(PENDING + number8(chunk.number))

    def _apply(self, bundle: Bundle) -> Commit:
        for counter, by in bundle.counters.items():
            name = counted(counter, self.meta.counters)
            total = self.meta.counters.get(name, 0) + by
            self.meta.counters[name] = min(max(total, -MOST_COUNTED), MOST_COUNTED)
        # Everything goes under one number: a high-water mark without the state that its records
        # made would lose them, and state without the mark would count them twice (mutation
        # applied_records_not_cut_off).
        self.commits.made += 1
        # Recovery replays commits without a gap, and a window that has fired must not open again:
        # readers of this commit rely on both.
        if self.commits.made != self.meta.number + 1 or bundle.watermark < self.meta.watermark:
            raise InvariantError(
                f"{self.identity.shard}: commit {self.commits.made} at {bundle.watermark} follows"
                f" {self.meta.number} at {self.meta.watermark}"
            )
        self.meta.number = self.commits.made
        self.meta.watermark, self.meta.closed = bundle.watermark, None
        self.overlay.put(META, encode_meta(self.meta))
        puts, deletes = self.overlay.take()
        self.store.apply(puts, deletes)
        return Commit(self.identity.shard, self.identity.token, self.meta.number, puts, deletes)

    def _changes_nothing(self, chunk: OutputChunk | None, bundle: Bundle, rises: bool) -> bool:
        # Productions need a commit even where nothing is remembered: a weak one that is slow is
        # checkpointed by it (the search's mutation productions_need_no_commit).
        return chunk is None and not self.overlay and not bundle.counters and not rises

    def _write_timers(self) -> None:
        for domain, queue in self.timers.items():
            if not queue.uncommitted:
                continue
            for (key, tag), at in queue.take_changes().items():
                if tag.startswith(ORDER_TAG):
                    continue  # the segments of waiting records have it
                store_key = timer_key(key, self.identity.hashed(key), domain, tag)
                if at is None:
                    self.overlay.delete(store_key)
                else:
                    self.overlay.put(store_key, timer_value(at, queue.cause_of(key, tag)))

    def _write_high_water_marks(self, arrivals: list[Arrival]) -> None:
        # Of all arrivals, not only of those left after deduplication: a dropped copy is applied,
        # too.
        for arrival in arrivals:
            if last := arrival.batch.last_seq:
                self.overlay.put(
                    CHANNEL + arrival.channel.encode(), self.applied.after(arrival.channel, last)
                )
