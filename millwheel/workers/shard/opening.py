"""The state that a shard reads from its store when it opens."""

from __future__ import annotations

import msgspec

from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.formats.codec import decode_batch, decode_value
from millwheel.core.formats.store_layout import (
    CHANNEL,
    META,
    PENDING,
    TIMER,
    Meta,
    decode_meta,
    number_from8,
    parse_timer,
    parse_timer_value,
)
from millwheel.core.model.damage import checked
from millwheel.core.model.keys import key_from_bytes
from millwheel.core.model.names import ChannelName, NodeName
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.errors import invariant
from millwheel.ports import StateStore
from millwheel.workers.delivery.high_water_marks import HighWaterMarks, decode_high_water_marks
from millwheel.workers.delivery.outbox import OutputChunk
from millwheel.workers.delivery.routing import Fanout
from millwheel.workers.shard.productions import earliest_of
from millwheel.workers.store_read import Pending

_decode_pending = checked(msgspec.msgpack.Decoder(tuple[ChannelName, list[bytes]]).decode, "productions of a shard")


def read_meta(store: StateStore) -> Meta:
    """Commit number, next numbers and counters; fresh ones for a shard that never committed."""
    data = store.get(META)
    return Meta(counters={}) if data is None else decode_meta(data)


def read_high_water_marks(store: StateStore) -> dict[str, HighWaterMarks | int]:
    """Up to where its records have been applied, by channel."""
    return {store_key[1:].decode(): decode_high_water_marks(data) for store_key, data in store.scan(CHANNEL)}


def read_timers(store: StateStore) -> dict[Domain, TimerQueue]:
    """All timers, by the clock they obey."""
    queues = {domain: TimerQueue(domain) for domain in Domain}
    for store_key, data in store.scan(TIMER):
        key, domain, tag = parse_timer(store_key)
        queues[domain].set(key_from_bytes(key), tag, *parse_timer_value(data))
    for queue in queues.values():
        queue.take_changes()
    return queues


def read_pending(store: StateStore) -> Pending:
    """The productions that perhaps did not reach every consumer. To decode them takes long: any thread may, as long as
    nobody else uses the store."""
    found: list[tuple[int, ChannelName, list[AnyBatch]]] = []
    for store_key, data in store.scan(PENDING):
        channel, stored = _decode_pending(data)
        found.append((number_from8(store_key[1:]), channel, [decode_batch(encoded) for encoded in stored]))
    return found


def read_productions(pending: Pending, fanout: Fanout) -> list[OutputChunk]:
    """The same productions, for their consumers."""
    chunks = []
    for number, channel, stored in pending:
        batches: list[tuple[NodeName, AnyBatch]] = []
        for batch in stored:
            invariant(
                fanout.consumed(batch.stream) or not len(batch),
                f"{channel}: production {number} has {len(batch)} records of the stream {batch.stream!r}, which the "
                "pipeline has no consumer of: it was changed while they were in flight",
            )
            if isinstance(batch, ColumnBatch):
                batches += fanout.split_columns(batch)[0]
                continue
            decoded = [decode_value(raw) for raw in batch.values]
            batches += fanout.split(batch, decoded)[0]
        chunks.append(OutputChunk(number, channel, batches, earliest_of(batches)))
    return chunks
