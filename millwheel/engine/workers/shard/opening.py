"""The state that a shard reads from its store when it opens."""

from __future__ import annotations

from millwheel.adapters.ports import StateStore
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.formats.codec import decode_batch, decode_value
from millwheel.core.formats.store_layout import (
    CHANNEL,
    META,
    PENDING,
    TIMER,
    Meta,
    decode_meta,
    decode_pending,
    number_from8,
    parse_timer,
    parse_timer_value,
)
from millwheel.core.model.keys import key_from_bytes
from millwheel.core.model.names import ChannelName, NodeName
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.engine.workers.delivery.high_water_marks import (
    HighWaterMarks,
    decode_high_water_marks,
)
from millwheel.engine.workers.delivery.inbox import Inbox
from millwheel.engine.workers.delivery.instances import StoredInstances
from millwheel.engine.workers.delivery.outbox import Outbox, OutputChunk
from millwheel.engine.workers.shard.productions import earliest_of
from millwheel.engine.workers.state.waiting_records import waiting_records
from millwheel.engine.workers.store_read import Pending
from millwheel.errors import invariant


def read_meta(store: StateStore) -> Meta:
    """Commit number, next numbers and counters; fresh ones for a shard that never committed."""
    data = store.get(META)
    return Meta(counters={}) if data is None else decode_meta(data)


def read_high_water_marks(store: StateStore) -> dict[str, HighWaterMarks | int]:
    """Up to where its records have been applied, by channel."""
    return {
        store_key[1:].decode(): decode_high_water_marks(data)
        for store_key, data in store.scan(CHANNEL)
    }


def read_timers(store: StateStore) -> dict[Domain, TimerQueue]:
    """All timers, by the clock they obey."""
    queues = {domain: TimerQueue(domain) for domain in Domain}
    for store_key, data in store.scan(TIMER):
        key, domain, tag = parse_timer(store_key)
        queues[domain].set(key_from_bytes(key), tag, *parse_timer_value(data))
    for record in waiting_records(store):
        queues[Domain.EVENT].set(record.key, record.tag, record.at)
    # They are stored: as changes, the first commit would write all of them again.
    for queue in queues.values():
        queue.take_changes()
    return queues


def read_pending(store: StateStore) -> Pending:
    """The productions that perhaps did not reach every consumer. To decode them takes long: any
    thread may, as long as no other uses the store."""
    pending: list[tuple[int, ChannelName, list[AnyBatch], list[dict[str, bytes]]]] = []
    for store_key, data in store.scan(PENDING):
        form = decode_pending(data)
        batches = [decode_batch(encoded) for encoded in form.batches]
        pending.append(
            (number_from8(store_key[1:]), ChannelName(form.channel), batches, form.instances)
        )
    return pending


def read_productions(pending: Pending, fanout: Fanout) -> list[OutputChunk]:
    """The same productions, for their consumers."""
    chunks = []
    before = 0
    for number, channel, stored, instances in pending:
        # They leave in this order: one that overtakes another raises the mark over its records.
        invariant(number > before, f"{channel}: production {number} is stored behind {before}")
        before = number
        batches: list[tuple[NodeName, AnyBatch]] = []
        for index, batch in enumerate(stored):
            invariant(
                fanout.consumed(batch.stream) or not len(batch),
                f"{channel}: production {number} has {len(batch)} records of the stream"
                f" {batch.stream!r}, which the pipeline has no consumer of: it was changed while"
                " they were in flight",
            )
            chosen = StoredInstances(batch.seqs, instances[index] if instances else {})
            if isinstance(batch, ColumnBatch):
                batches += fanout.split_columns(batch, epochs=chosen)[0]
                continue
            decoded = [decode_value(raw) for raw in batch.values]
            batches += fanout.split(batch, decoded, epochs=chosen)[0]
        chunks.append(OutputChunk(number, channel, batches, earliest_of(batches)))
    return chunks


def validate_store(
    store: StateStore, timers: dict[Domain, TimerQueue], inbox: Inbox, outbox: Outbox, meta: Meta
) -> None:
    """Raise InvariantError unless a shard that opens from ``store`` has the same state as this one
    in memory. For tests: it reads all timers, marks and productions. Between bundles only."""
    for domain, queue in read_timers(store).items():
        stored, in_memory = set(queue.items()), set(timers[domain].items())
        invariant(
            stored == in_memory,
            f"{domain} timers: {stored - in_memory} are only stored, {in_memory - stored} only set",
        )
    numbers = {number_from8(store_key[1:]) for store_key, _ in store.scan(PENDING)}
    invariant(
        numbers == outbox.stored_numbers,
        f"productions {sorted(outbox.stored_numbers)} are not done, but {sorted(numbers)} are"
        " stored",
    )
    marks, waiting = read_high_water_marks(store), inbox.waiting_channels
    for channel, accepted in inbox.accepted.items():
        mark = marks.get(channel, 0)
        applied = mark == accepted or channel in waiting
        invariant(
            applied,
            f"{channel} was taken up to {accepted}, but is applied up to {mark}, and nothing waits",
        )
    number = read_meta(store).number
    invariant(number == meta.number, f"the store is at commit {number}, the shard at {meta.number}")
