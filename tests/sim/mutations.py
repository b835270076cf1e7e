"""Deliberate mistakes in the code, each of which the simulator must notice: the proof that it bites."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from millwheel.adapters.clock import SteadyClock
from millwheel.adapters.journal.append import AppendForm, AppendWriter
from millwheel.adapters.journal.folder import COLLECTED
from millwheel.adapters.spaces.durable import read_whole
from millwheel.core.formats.store_layout import META, ROW, decode_meta, encode_meta
from millwheel.core.model.records import Batch
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.panes import as_retraction
from millwheel.injector.range_index import RangeIndex
from millwheel.master.membership import Membership
from millwheel.master.tables import succession
from millwheel.testing.memory import stores as memory_stores
from millwheel.workers import events as ev
from millwheel.workers.bundle.bundle import Hold
from millwheel.workers.delivery import inbox
from millwheel.workers.delivery.outbox import Outbox
from millwheel.workers.effects import Ack
from millwheel.workers.loop import snapshots
from millwheel.workers.loop.commits import CommitGroups
from millwheel.workers.loop.runtime import WorkerRuntime
from millwheel.workers.loop.traffic import Traffic
from millwheel.workers.operators import callbacks
from millwheel.workers.recovery import recovery
from millwheel.workers.shard import seen_ids, shard
from millwheel.workers.shard.admission import Admission
from millwheel.workers.shard.commit_building import CommitBuilding
from millwheel.workers.shard.productions import ProductionBuilding
from millwheel.workers.shard.seen_ids import SeenIds
from millwheel.workers.shard.watermark import ShardWatermark
from millwheel.workers.sinks.upsert import Table, UpsertOperator
from tests.sim import (
    coordinator_mutations,
    failing_mutations,
    hang_mutations,
    range_mutations,
    recovery_mutations,
    report_mutations,
    savepoint_mutations,
    source_mutations,
    standby_mutations,
    worker,
)
from tests.sim.mistakes import MUTATIONS, Context, Mutation, mistake, replaced

__all__ = [
    "MUTATIONS",
    "Mutation",
    "coordinator_mutations",
    "failing_mutations",
    "hang_mutations",
    "range_mutations",
    "recovery_mutations",
    "report_mutations",
    "savepoint_mutations",
    "source_mutations",
    "standby_mutations",
]

# --- delivery and commits


@mistake(within=10)
def ack_before_commit() -> Context:
    """Deliveries are acked when they arrive."""
    right = Traffic.delivery

    def wrong(self: Traffic, event: ev.DeliveryCame) -> None:
        self._out.acks.append(Ack(event.reply_to, event.channel, event.target, event.epoch, event.index, 0))
        right(self, event)

    return replaced(Traffic, "delivery", wrong)


@mistake(within=10)
def lanes_of_a_shard_answered_as_one() -> Context:
    """Of all that a shard applied in a group of commits, only the last delivery is acked, whatever lane it came by."""
    right = Traffic.answer

    def wrong(self: Traffic, applied: Any) -> None:
        right(self, {each[0]: each for each in applied}.values())

    return replaced(Traffic, "answer", wrong)


@mistake(within=10)
def productions_sent_before_commit() -> Context:
    """Productions leave when they are made."""
    return replaced(Traffic, "_may_have_early", lambda self, target: True)


@mistake(within=60, faults="kill kill-in-a-call power")
def commits_written_in_any_order() -> Context:
    """A commit may be written before that of another shard of the worker whose productions it has applied."""
    right = CommitGroups.submit
    calls = itertools.count()

    def wrong(self: CommitGroups, shards: Any, now: int, at_once: bool = False) -> Any:
        return right(self, shards[next(calls) % 2 :: 2], now, at_once)

    return replaced(CommitGroups, "submit", wrong)


@mistake(within=10)
def quiet_shards_forget_when_to_wake() -> Context:
    """A shard that had nothing to do is not looked at when its time comes, only when something happens to it."""
    right = WorkerRuntime._runnable

    def wrong(self: WorkerRuntime, served: Any, now: int, patient: bool) -> bool:
        runs = right(self, served, now, patient)
        served.wakes_at = MAX_TIME
        return runs

    return replaced(WorkerRuntime, "_runnable", wrong)


@mistake(within=20)
def applied_records_not_cut_off() -> Context:
    """A restarted sender's records are taken again."""
    return replaced(Batch, "after", lambda self, seq: self)


@mistake(within=30, faults="cut loss failing one-way partition", workload="numbers", first=5)
def gaps_accepted() -> Context:
    """A delivery is taken although an earlier one is missing."""
    right = inbox.Inbox.offer

    def wrong(
        self: inbox.Inbox, channel: str, epoch: int, index: int, batch: Any, reply_to: object
    ) -> inbox.DeliveryOutcome:
        known = self._channels.setdefault(channel, inbox._Channel(accepted=0))
        if epoch >= known.epoch:
            known.epoch, known.next_index = epoch, index
        return right(self, channel, epoch, index, batch, reply_to)

    return replaced(inbox.Inbox, "offer", wrong)


@mistake(within=60)
def pending_productions_forgotten() -> Context:
    """Recovery does not send again what was checkpointed."""
    return replaced(shard, "read_productions", lambda store, fanout: [])


@mistake(within=60)
def unnumbered_productions_not_settled() -> Context:
    """A weak production that was checkpointed is done with when it is acked, although a crash sends it again."""
    right = Outbox._finish

    def wrong(self: Outbox, chunk: Any) -> None:
        right(self, chunk)
        self._unsettled.clear()

    return replaced(Outbox, "_finish", wrong)


@mistake(within=10, faults="none", first=11010)
def weak_ids_without_their_maker() -> Context:
    """The id of a weak production says of what it was made, but not by whom."""
    right, found = ProductionBuilding.__init__, callbacks.record_causes

    def wrong(self: ProductionBuilding, *given: Any) -> None:
        right(self, *given)
        self._maker = b""

    def without_stream(batch: Batch, channel: str) -> list[Any]:
        return found(batch, channel) if batch.seqs else list(batch.ids or [])

    @contextmanager
    def both() -> Iterator[None]:
        with replaced(ProductionBuilding, "__init__", wrong), replaced(callbacks, "record_causes", without_stream):
            yield

    return both()


@mistake(within=10, workload="accounts")
def back_pressure_stops_circles() -> Context:
    """A shard with too much on its way does not take what follows from it either."""
    return replaced(Admission, "_circles", lambda self, channel: False)


# --- state


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


# --- watermarks


@mistake(within=20)
def watermark_ahead_of_work() -> Context:
    """A shard reports its input watermark, whatever it still has to do."""
    return replaced(ShardWatermark, "hold", lambda self, now: Hold(self.input, "input"))


@mistake(within=20)
def watermark_ahead_of_productions() -> Context:
    """Productions on their way do not hold the watermark."""
    return replaced(Outbox, "min_timestamp", lambda self: MAX_TIME)


@mistake(within=40)
def watermark_reported_before_commit() -> Context:
    """What is applied but not durable does not hold the watermark, nor do its productions."""

    def of_the_sent(self: Outbox) -> int:
        return min((chunk.min_timestamp for chunk in self._open.values() if chunk.open_parts), default=MAX_TIME)

    def hold(self: ShardWatermark, now: int) -> Hold:
        with replaced(Outbox, "min_timestamp", of_the_sent):
            return self.lowest(self.work(now))

    return replaced(ShardWatermark, "hold", hold)


@mistake(within=100, faults="zombie", workload="numbers")
def token_not_checked() -> Context:
    """The injector believes whoever reports a shard."""
    return replaced(RangeIndex, "believed", lambda self, rows, tokens: rows)


@mistake(within=40, faults="clock")
def wall_clock_believed() -> Context:
    """A worker waits for times of a clock that was set back."""
    return replaced(SteadyClock, "now_us", lambda self: self._clock.now_us())


# --- the durable store


@mistake(within=40, faults="kill kill-in-a-call slow-disk")
def snapshot_before_durable() -> Context:
    """A checkpoint is published although its last commits are not durable, and says so wrongly."""
    right = snapshots.SnapshotPolicy._take

    def wrong(self: snapshots.SnapshotPolicy, machine: Any, state: Any, now: int) -> None:
        right(self, machine, state, now)
        state.taken -= 1

    return replaced(snapshots.SnapshotPolicy, "_take", wrong)


@mistake(within=20)
def journal_replayed_twice() -> Context:
    """Replay does not skip what the snapshot holds, nor check that commits are contiguous."""

    def wrong(name: str, ancestor: Any, journals: Any, store: Any, have: int, since: Any = None, **_: Any) -> int:
        for commit, _size in recovery._commits(name, ancestor, journals, since):
            store.apply(commit.puts[: len(commit.puts) // 2], commit.deletes)
            have = commit.number
        data = store.get(META)
        if data is not None:
            meta = decode_meta(data)
            meta.number = have
            store.apply([(META, encode_meta(meta))], [])
        return have

    return replaced(recovery, "replay", wrong)


@mistake(within=40)
def segments_deleted_too_early() -> Context:
    """After any snapshot all older segments go, whoever wrote to them."""
    right = snapshots.SnapshotPolicy.published

    def wrong(self: snapshots.SnapshotPolicy, name: str, token: int, last_commit: int) -> None:
        self._contents.clear()
        right(self, name, token, last_commit)

    return replaced(snapshots.SnapshotPolicy, "published", wrong)


@mistake(within=60, faults="pause false-alarm session")
def seal_not_looked_for() -> Context:
    """A commit is acked as soon as it is synced."""

    def wrong(self: AppendWriter, entries: Any) -> int:
        right_exists = self._files.exists
        self._files.exists = lambda path: False  # type: ignore[method-assign]
        try:
            return right(self, entries)
        finally:
            self._files.exists = right_exists  # type: ignore[method-assign]

    right = AppendWriter.commit
    return replaced(AppendWriter, "commit", wrong)


@mistake(within=60, faults="flip kill")
def damaged_tables_served() -> Context:
    """A table that was restored without reading it is believed when it is read."""

    def wrong(files: Any, path: str) -> Any:
        body = read_whole(files, path)[memory_stores._DIGEST_BYTES :]
        try:
            return memory_stores._decode(body)
        except msgspec.MsgspecError:
            return []

    return replaced(memory_stores, "_read_table", wrong)


@mistake(within=20, faults="zombie")
def seal_deleted_by_collection() -> Context:
    """Garbage collection takes the seal with the segments."""
    right = AppendForm.collect

    def wrong(self: AppendForm, folder: Any) -> None:
        right(self, folder)
        for name in folder.names():
            if name != COLLECTED:
                folder.delete(name)

    return replaced(AppendForm, "collect", wrong)


@mistake(within=10, faults="zombie", first=5292)
def seal_not_noticed_when_idle() -> Context:
    """A worker that commits nothing never looks whether it was declared dead."""
    right = worker.write_groups
    return replaced(worker, "write_groups", lambda writer, groups, post: not groups or right(writer, groups, post))


@mistake(within=40, faults="power")
def group_not_synced() -> Context:
    """A commit is written and not synced."""

    def wrong(self: AppendWriter, group: bytes) -> None:
        self._files.write_at(self._fd, group, self._offset)
        self._offset += len(group)
        self._group += 1

    return replaced(AppendWriter, "_append", wrong)


# --- the master


@mistake(within=20)
def owner_before_seal() -> Context:
    """Shards of a dead worker are given away before its journal is sealed."""
    right = succession._next

    def wrong(node: str, entry: Any, now: Any, census: Any) -> Any:
        dead = {name: 0 if end is None else end for name, end in now.dead.items()}
        return right(node, entry, replace(now, dead=dead), census)

    return replaced(succession, "_next", wrong)


@mistake(within=60)
def lineage_cut_too_early() -> Context:
    """The newest ancestor is forgotten as soon as it has published any snapshot."""
    right = succession._pruned

    def wrong(entry: Any, now: Any) -> Any:
        tokens = {shard: token + 1 for shard, token in now.manifest_tokens.items()}
        return right(entry, replace(now, manifest_tokens=tokens))

    return replaced(succession, "_pruned", wrong)


@mistake(within=60)
def journal_collected_while_needed() -> Context:
    """The journal of the dead goes although a lineage names it."""
    right = Membership.collections
    return replaced(Membership, "collections", lambda self, mentioned: right(self, ()))


# --- rows that stand


@mistake(within=5, workload="tables")
def retraction_taken_for_a_row() -> Context:
    """A sink of the rows that stand keeps what was taken back."""
    right = Table.apply

    def wrong(self: Table, overlay: Any, record: Any) -> None:
        back = as_retraction(record.value)
        right(self, overlay, record if back is None else replace(record, value=back.value))

    return replaced(Table, "apply", wrong)


@mistake(within=20, workload="tables")
def rows_forgotten_by_a_commit() -> Context:
    """Changes of the rows that stand are not part of the commit."""
    right = UpsertOperator.run

    def wrong(self: UpsertOperator, bundle: Any) -> None:
        right(self, bundle)
        for place in [place for place in bundle.overlay._changes if place.startswith(ROW)][:1]:
            del bundle.overlay._changes[place]

    return replaced(UpsertOperator, "run", wrong)


@mistake(within=10, faults="kill kill-again slow-disk sync power", workload="shown")
def uncommitted_rows_shown() -> Context:
    """A sink that shows at once gets what is not durable yet."""
    return replaced(Traffic, "_may_have_early", lambda self, target: target in self._served)
