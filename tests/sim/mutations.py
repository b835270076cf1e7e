"""Deliberate mistakes in the code, each of which the simulator must notice: the proof that it bites.

A mutation replaces one function for as long as its context lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millwheel.core.layout import META, decode_meta, encode_meta
from millwheel.core.records import Batch
from millwheel.core.times import MAX_TIME
from millwheel.workers import events as ev
from millwheel.workers import inbox, recovery, seen_ids, shard, snapshots, source
from millwheel.workers.runtime import WorkerRuntime
from millwheel.workers.seen_ids import SeenIds
from millwheel.workers.turn import Hold

Mutation = Callable[[], Any]


@contextmanager
def _replaced(owner: Any, name: str, wrong: Callable[..., Any]) -> Iterator[None]:
    right = getattr(owner, name)
    setattr(owner, name, wrong)
    try:
        yield
    finally:
        setattr(owner, name, right)


def ack_before_commit() -> Any:
    """Deliveries are acked when they arrive."""
    right = WorkerRuntime._on_delivery

    def wrong(self: WorkerRuntime, event: ev.DeliveryCame, now: int) -> None:
        self._ports.transport.ack(event.route, event.channel, event.target, event.epoch, event.index)
        right(self, event, now)

    return _replaced(WorkerRuntime, "_on_delivery", wrong)


def applied_records_not_cut_off() -> Any:
    """A restarted sender's records are taken again."""
    return _replaced(Batch, "after", lambda batch, seq: batch)


def gaps_accepted() -> Any:
    """A delivery is taken although an earlier one is missing."""
    right = inbox.Inbox.offer

    def wrong(self: inbox.Inbox, channel: str, epoch: int, index: int, batch: Any, route: object) -> inbox.Verdict:
        known = self._channels.setdefault(channel, inbox._Channel(accepted=0))
        if epoch >= known.epoch:
            known.epoch, known.next_index = epoch, index
        return right(self, channel, epoch, index, batch, route)

    return _replaced(inbox.Inbox, "offer", wrong)


def pending_productions_forgotten() -> Any:
    """Recovery does not send again what was checkpointed."""
    return _replaced(shard.Shard, "_recover_productions", lambda self: None)


def timers_not_stored() -> Any:
    """Timers live in memory only."""

    def wrong(self: shard.Shard) -> None:
        for queue in self._timers.values():
            queue.take_changes()

    return _replaced(shard.Shard, "_write_timers", wrong)


def watermark_ahead_of_work() -> Any:
    """A shard reports its input watermark, whatever it still has to do."""
    return _replaced(shard.Shard, "watermark", lambda self, now: Hold(self.input_watermark, "input"))


def watermark_ahead_of_productions() -> Any:
    """Productions on their way do not hold the watermark."""
    from millwheel.workers.outbox import Outbox

    return _replaced(Outbox, "min_timestamp", lambda self: MAX_TIME)


def duplicates_trusted_to_the_filter() -> Any:
    """An id that the Bloom filter may have seen is dropped without a look at the exact set."""

    def wrong(self: SeenIds, marks: list[bytes], digests: list[bytes]) -> set[bytes]:
        low, high = seen_ids._words(digests)
        return {
            marks[number]
            for bloom in self._filters.values()
            for number, (maybe, word) in enumerate(zip(bloom.maybe(low, high).tolist(), low.tolist(), strict=True))
            if maybe or word % 16 == 0  # a filter that is crowded
        }

    return _replaced(SeenIds, "_seen_before", wrong)


def ids_not_remembered() -> Any:
    """External ids are not marked in the commit."""
    return _replaced(SeenIds, "fresh", lambda self, batch: list(range(len(batch))))


def position_committed_when_read() -> Any:
    """A source commits how far it has read before the consumers have applied it."""
    right = source.SourceOperator._read

    def wrong(self: source.SourceOperator, part: Any, turn: Any) -> None:
        right(self, part, turn)
        if part.outstanding:
            part.committed = part.outstanding[-1].after
            self._write_position(part, turn)

    return _replaced(source.SourceOperator, "_read", wrong)


def snapshot_before_durable() -> Any:
    """A checkpoint is published although its last commits are not durable, and says so wrongly."""
    right = snapshots.SnapshotPolicy._take

    def wrong(self: snapshots.SnapshotPolicy, machine: Any, state: Any, now: int) -> None:
        right(self, machine, state, now)
        state.taken -= 1

    return _replaced(snapshots.SnapshotPolicy, "_take", wrong)


def journal_replayed_twice() -> Any:
    """Replay does not skip what the snapshot holds, nor check that commits are contiguous."""

    def wrong(name: str, ancestor: Any, journals: Any, store: Any, have: int) -> int:
        for commit in recovery._commits(name, ancestor, journals):
            store.apply(commit.puts[: len(commit.puts) // 2], commit.deletes)
            have = commit.number
        data = store.get(META)
        if data is not None:
            meta = decode_meta(data)
            meta.number = have
            store.apply([(META, encode_meta(meta))], [])
        return have

    return _replaced(recovery, "_replay", wrong)


MUTATIONS: dict[str, Mutation] = {
    made.__name__: made
    for made in (
        ack_before_commit,
        applied_records_not_cut_off,
        gaps_accepted,
        pending_productions_forgotten,
        timers_not_stored,
        watermark_ahead_of_work,
        watermark_ahead_of_productions,
        duplicates_trusted_to_the_filter,
        ids_not_remembered,
        position_committed_when_read,
        snapshot_before_durable,
        journal_replayed_twice,
    )
}
