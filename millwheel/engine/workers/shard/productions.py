"""Numbers the productions of a bundle as a chunk, and stores it with the commit until every
consumer has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from msgspec import Raw

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch, ColumnBatch, encode_columns
from millwheel.core.formats.codec import encode_batch, encode_value
from millwheel.core.formats.store_layout import PENDING, Meta, PendingForm, number8, pack
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import KeyHash, key_hash
from millwheel.core.model.lease import Lease
from millwheel.core.model.limits import Limits, over
from millwheel.core.model.names import (
    ChannelName,
    NodeName,
    ShardName,
    Token,
    rest_of,
    shard_channel,
    whole_of,
)
from millwheel.core.model.records import Batch, DeadLetter
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.bundle.bundle import Bundle, Produced, beginning, keys_of
from millwheel.engine.workers.delivery.combining import Worth
from millwheel.engine.workers.delivery.consumer_keys import Keyless
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.engine.workers.delivery.instances import (
    AnyInstances,
    ChosenInstances,
    Instances,
    ProductionInstances,
)
from millwheel.engine.workers.delivery.outbox import OutputChunk
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError

_HEAD_BYTES = 10  # Fixed: msgpack's heads of a field's name and of its value, at most
_NUMBER_BYTES = 8  # Fixed: of a number
Split = tuple[list[tuple[NodeName, AnyBatch]], list[Keyless]]
"""The records of each consumer under its keys, and the records without a key."""


@dataclass(frozen=True, slots=True)
class ShardIdentity:
    """Which shard, under which token, and with which guarantee of its computation. ``circle`` are
    the nodes on the ways from its productions back to it. ``makers``: which node makes a stream, of
    those that are chained behind it."""

    node: NodeName
    shard: ShardName
    token: Token
    pipeline: str
    weak: bool = False
    with_ids: bool = True
    circle: frozenset[str] = frozenset()
    hashed: KeyHash = key_hash
    makers: Mapping[str, str] = field(default_factory=dict)

    @property
    def lease(self) -> Lease:
        """The token that fences the shard's former owners."""
        return Lease(self.token)


@dataclass(slots=True)
class _Parts:
    """The parts of a chunk: the consumers' batches, the stored form of each batch, and which
    instances its records went to."""

    batches: list[tuple[NodeName, AnyBatch]] = field(default_factory=list)
    stored: list[bytes] = field(default_factory=list)
    instances: list[dict[str, bytes]] = field(default_factory=list)

    def add(
        self,
        stored: bytes,
        batches: list[tuple[NodeName, AnyBatch]],
        chosen: ChosenInstances | None = None,
    ) -> None:
        """One batch."""
        self.stored.append(stored)
        self.batches += batches
        self.instances.append({} if chosen is None else chosen.noted)

    def form(self, channel: ChannelName) -> bytes:
        """The stored form."""
        return pack(
            PendingForm(channel, self.stored, self.instances if any(self.instances) else [])
        )


class ProductionBuilding:
    """Checkpoints the productions of one shard. ``meta`` numbers records and chunks."""

    def __init__(
        self, identity: ShardIdentity, meta: Meta, overlay: Overlay, fanout: Fanout, limits: Limits
    ) -> None:
        self._identity = identity
        self._meta = meta
        self._overlay = overlay
        self._fanout = fanout
        self._limits = limits
        self._maker: bytes = pack(identity.node)
        self._worth: dict[str, Worth] = {}
        self.instances = ProductionInstances(fanout.rules)
        self._boundary = ColumnBoundary(f"the productions of {identity.node}")

    def checkpoint(self, bundle: Bundle) -> OutputChunk | None:
        """Number the productions and write them into the commit; None if there are no consumers."""
        if not bundle.outputs.count:
            return None
        born_us = min(
            [a.batch.born_us for a in bundle.arrivals if a.batch.born_us], default=bundle.now_us
        )
        parts = _Parts()
        for groups in bundle.outputs.groups:
            self._take_groups(groups, bundle, born_us, parts)
        for columns in bundle.outputs.columns:
            self._take_columns(columns, bundle, born_us, parts)
        streams = bundle.outputs.streams
        for stream in [stream for stream in streams if stream != DEAD_LETTERS]:
            self._take(stream, streams[stream], bundle, born_us, parts)
        if letters := streams.get(DEAD_LETTERS):  # those of the lines above are among them
            self._take(DEAD_LETTERS, letters, bundle, born_us, parts)
        return self._chunk(parts) if parts.stored else None

    def _chunk(self, parts: _Parts) -> OutputChunk:
        number = self._meta.next_chunk
        self._meta.next_chunk += 1
        # Commits delete it by its number: under that of another one, it would go with that one.
        if number < 1:
            raise InvariantError(f"{self._identity.shard}: a production has the number {number}")
        shard, weak = self._identity.shard, self._identity.weak
        chunk = OutputChunk(
            number, shard_channel(shard), parts.batches, earliest_of(parts.batches), stored=not weak
        )
        form = parts.form(shard_channel(shard))
        if weak:
            chunk.stored_form = form
        else:
            self._overlay.put(PENDING + number8(number), form)
        return chunk

    def _take(
        self, stream: str, produced: Produced, bundle: Bundle, born_us: int, parts: _Parts
    ) -> None:
        if not produced.raws or self._unconsumed(stream, len(produced.raws), bundle):
            return
        name = stream
        if self._fanout.combining(stream) is not None:
            alone = Batch(
                stream, [], produced.timestamps, produced.keys, list(produced.raws), None, born_us
            )
            name = self._combined(
                alone, lambda: self._split(alone, produced, AnyInstances()), bundle, parts
            )
            if not self._fanout.consumed(name):
                return
        first = self._meta.next_seq
        batch = self._numbered(name, produced, born_us)
        if bundle.traced is not None:
            bundle.traced.numbered(stream, batch)
        data = encode_batch(batch)
        if (
            len(data) > self._limits.record
            and stream != DEAD_LETTERS
            and self._too_big(stream, produced, bundle)
        ):
            self._meta.next_seq = first
            self._take(stream, produced, bundle, born_us, parts)
            return
        batch.size = len(data)
        # An instance that is not stored is chosen anew after a crash, and the production comes to a
        # shard that has no mark of it: see mistake instances_of_productions_are_not_stored.
        chosen = self.instances.choosing(name, len(batch), first, bundle.now_us)
        batches, keyless = self._split(batch, produced, chosen)
        parts.add(data, batches, chosen)
        bundle.try_(keys_of(stream), len(batch))
        if keyless:
            self._lose(keyless, batch, produced.decoded, bundle, produced.ids)

    def _split(self, batch: Batch, produced: Produced, instances: Instances | None) -> Split:
        """The productions of each consumer; their values are decoded only where some key is taken
        out of them."""
        decoded = produced.decoded if self._fanout.looks(batch.stream) else produced.raws
        return self._fanout.split(batch, decoded, epochs=instances)

    def _combined(
        self, batch: AnyBatch, split: Callable[[], Split], bundle: Bundle, parts: _Parts
    ) -> str:
        """The stream by which these productions go to their consumers: their own, or that of the
        rest, where groups of them went to the others."""
        combining = self._fanout.combining(batch.stream)
        if (
            combining is None
            or self._identity.weak
            or bundle.traced is not None
            or self._has_large(batch)
        ):
            return batch.stream

        def of_consumers() -> list[tuple[NodeName, AnyBatch]] | None:
            batches, keyless = split()
            return None if keyless else combining.of(batches)

        worth = self._worth.setdefault(batch.stream, Worth())
        groups = worth.groups(combining, len(batch), of_consumers)
        if groups is None:
            return batch.stream
        for each in groups:
            self._take_groups(each, bundle, batch.born_us, parts)
        if not combining.rest:
            bundle.try_(keys_of(whole_of(batch.stream)), len(batch))
        return rest_of(batch.stream)

    def _has_large(self, batch: AnyBatch) -> bool:
        """Whether some productions may become dead letters."""
        return (
            isinstance(batch, Batch)
            and max(map(len, batch.values), default=0) > self._limits.record
        )

    def _take_groups(self, groups: AnyBatch, bundle: Bundle, born_us: int, parts: _Parts) -> None:
        if isinstance(groups, ColumnBatch):
            self._take_columns(groups, bundle, born_us, parts)
            return
        first = self._meta.next_seq
        self._meta.next_seq += len(groups)
        batch = groups.numbered(list(range(first, self._meta.next_seq)), born_us)
        data = encode_batch(batch)
        batch.size = len(data)
        parts.add(data, self._fanout.split(batch, batch.values)[0])

    def _take_columns(
        self, columns: ColumnBatch, bundle: Bundle, born_us: int, parts: _Parts
    ) -> None:
        if self._unconsumed(columns.stream, len(columns), bundle):
            return
        if most_bytes(columns.frame) > self._limits.record:  # perhaps: rows are measured one by one
            self._take_as_rows(columns.stream, columns, bundle, born_us, parts)
            return
        alone = replace(columns, born_us=born_us)
        split = partial(self._fanout.split_columns, alone, epochs=AnyInstances())
        name = self._combined(alone, split, bundle, parts)
        if not self._fanout.consumed(name):
            return
        first, after = self._meta.next_seq, self._meta.next_seq + len(columns)
        try:
            with self._boundary.inside(bundle.count):
                batch = replace(alone, stream=name, seqs=np.arange(first, after))
                stored = encode_columns(batch, packed=True)
                chosen = self.instances.choosing(name, len(batch), first, bundle.now_us)
                batches, keyless = self._fanout.split_columns(batch, epochs=chosen)
        except Inexact:
            self._take_as_rows(name, columns, bundle, born_us, parts)
            return
        self._meta.next_seq = after
        parts.add(stored, batches, chosen)
        bundle.try_(keys_of(whole_of(columns.stream)), len(batch))
        if keyless:
            rows = batch.rows()
            self._lose(keyless, rows, rows.values, bundle, [b""] * len(rows))

    def _take_as_rows(
        self, stream: str, columns: ColumnBatch, bundle: Bundle, born_us: int, parts: _Parts
    ) -> None:
        rows = columns.rows()
        raws = [Raw(encode_value(value)) for value in rows.values]
        produced = Produced(raws, rows.keys, rows.timestamps, [b""] * len(rows))
        self._take(stream, produced, bundle, born_us, parts)

    def _too_big(self, stream: str, produced: Produced, bundle: Bundle) -> bool:
        """Move records over the limit to the dead letters; True when there were any."""
        most = self._limits.record
        big = [index for index, raw in enumerate(produced.raws) if len(raw) > most]
        for index in big:
            letter = DeadLetter(
                self._identity.pipeline,
                bundle.outputs.makers.get(whole_of(stream), self._identity.node),
                whole_of(stream),
                over("record", "a record", len(produced.raws[index]), most),
                key=produced.keys[index],
                value=beginning(produced.decoded[index]),
                timestamp=produced.timestamps[index],
            )
            letter.what = "production"
            bundle.dead_letter(letter, produced.timestamps[index], produced.ids[index] or None)
        produced.leave_out(big)
        if bundle.traced is not None:
            bundle.traced.leave_out(stream)
        return bool(big)

    def _unconsumed(self, stream: str, count: int, bundle: Bundle) -> bool:
        if self._fanout.consumed(stream):
            return False
        bundle.count(f"unconsumed.{stream}", count)
        return True

    def _lose(
        self,
        keyless: Sequence[Keyless],
        batch: Batch,
        decoded: Sequence[Any],
        bundle: Bundle,
        ids: Sequence[bytes],
    ) -> None:
        """Productions that a consumer's extractor could give no key."""
        stream = whole_of(batch.stream)
        for bad in keyless:
            value, at = decoded[bad.index], batch.timestamps[bad.index]
            letter = DeadLetter(
                self._identity.pipeline,
                bad.node,
                stream,
                bad.reason,
                None,
                value,
                at,
            )
            # A record without an id gets a letter without one; else all such letters would be
            # copies of each other.
            identity = (bad.node, ids[bad.index]) if ids[bad.index] else None
            maker = self._identity.makers.get(stream, "")
            bundle.dead_letter(letter, at, identity, keys_of(stream), maker)

    def _numbered(self, stream: str, produced: Produced, born_us: int) -> Batch:
        count, labels = len(produced.raws), produced.labels or None
        if self._identity.weak:
            # two computations may make something of one record, and a third may consume both
            maker = self._maker
            ids = (
                [maker + record_id if record_id else None for record_id in produced.ids]
                if self._identity.with_ids
                else None
            )
            raws = list(produced.raws)
            return Batch(
                stream, [], produced.timestamps, produced.keys, raws, ids, born_us, labels=labels
            )
        seqs = list(range(self._meta.next_seq, self._meta.next_seq + count))
        self._meta.next_seq += count
        return Batch(
            stream,
            seqs,
            produced.timestamps,
            produced.keys,
            produced.raws,
            None,
            born_us,
            labels=labels,
        )


def most_bytes(frame: pl.DataFrame) -> int:
    """More than any row takes encoded; 0 for a frame of numbers, whose rows are small."""
    columns = frame.get_columns()
    long = any(isinstance(column.dtype, pl.Struct | pl.String) for column in columns)
    return sum(map(_most_bytes, columns)) if long and frame.height else 0


def _most_bytes(column: pl.Series) -> int:
    if isinstance(column.dtype, pl.Struct):
        return (
            _HEAD_BYTES
            + len(column.name)
            + sum(map(_most_bytes, column.struct.unnest().get_columns()))
        )
    longest: Any = column.str.len_bytes().max() if column.dtype == pl.String else _NUMBER_BYTES
    return _HEAD_BYTES + len(column.name.encode()) + int(longest or 0)


def earliest_of(batches: Iterable[tuple[NodeName, AnyBatch]]) -> int:
    """The lowest timestamp in any of them (MAX_TIME: without records)."""
    return min([batch.earliest for _, batch in batches], default=MAX_TIME)
