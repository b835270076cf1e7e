"""Replays dead letters to this worker's shards.

The records of an order are a channel that no shard sends on: every worker reads the order in the
root, and offers each of its shards the records in its range, once in each life of the shard. The
high-water marks of the channel drop records that were applied before, as after any restart of a
sender.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

import msgspec

from millwheel.core.formats.codec import encode_value
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import KeyRange
from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.replays import Again, ReplayOrder, as_key
from millwheel.engine.workers.bundle.replays import ReplayReply
from millwheel.engine.workers.events import ReplayOrdered
from millwheel.engine.workers.loop.reporting import Reporting
from millwheel.engine.workers.loop.shard_handle import Served
from millwheel.engine.workers.loop.table_entries import TableEntries

_PIECE = 1_000  # letters that are offered to a shard at once


@dataclass(slots=True)
class Replaying:
    """The orders that this worker has read."""

    reporting: Reporting
    orders: dict[str, ReplayOrder] = field(default_factory=dict)
    at_start: set[str] = field(default_factory=set)

    def ordered(self, event: ReplayOrdered, every: Iterable[Served], entries: TableEntries) -> None:
        """Take an order. One that was there before the worker began keeps its run from ending."""
        order = event.order
        if order.id in self.orders:
            return
        self.orders[order.id] = order
        if event.at_start:
            self.at_start.add(order.id)
            self.reporting.careful = True
        for served in every:
            served.last.news = True
            self._offer(order, served, entries[served.shard.identity.shard].range)

    def done(self, name: str) -> None:
        """Drop an order all of whose records have been applied."""
        self.orders.pop(name, None)

    def begin(self, served: Served, entry: ShardEntry) -> None:
        """Offer a shard that was opened its ordered records, before it reports a watermark."""
        for order in self.orders.values():
            self._offer(order, served, entry.range)

    def _offer(self, order: ReplayOrder, served: Served, keys: KeyRange) -> None:
        """Offer the records of an order to a shard. One that has reported its end takes nothing
        more in this run, because its consumers may have ended."""
        if order.id not in self.at_start and served.published_us == MAX_TIME:
            return
        numbered, hashed = enumerate(order.records, 1), served.shard.identity.hashed
        records = [
            (seq, each)
            for seq, each in numbered
            if each.node == served.node and hashed(as_key(each.key)) in keys
        ]
        index = 0
        for _, group in groupby(records, lambda pair: pair[1].stream):
            rows = list(group)
            for first in range(0, len(rows), _PIECE):
                piece = rows[first : first + _PIECE]
                served.shard.offer(
                    order.channel, 1, index, _batch(piece), ReplayReply(order, dict(piece))
                )
                index += 1
        if records:
            served.mark_changed()


def _batch(rows: list[tuple[int, Again]]) -> Batch:
    return Batch(
        rows[0][1].stream,
        [seq for seq, _ in rows],
        [each.timestamp for _, each in rows],
        [as_key(each.key) for _, each in rows],
        [msgspec.Raw(encode_value(each.value)) for _, each in rows],
    )
