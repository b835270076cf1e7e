"""A shard's inheritance from the shards whose range it took: everything in its range, exactly once.

A shard comes from its parents by a split or a merge. Its store is made of their last snapshots, by
the rules below. They depend only on those snapshots and the ranges, so that every owner makes the
same store until the shard has a snapshot of its own.

    keys                state, timers, windows, rows, slices, ids, numbers: by the hash of the key
    expired slices      up to the highest of the parents' times: dropped slices are not asked for
    columns             each segment, cut down to the keys of the range
    archives            as columns, block by block
    waiting records     as columns, without those that have come
    high-water marks    copied to both children of a split; of a merge one for each sub-range
                        (``high_water_marks.py``)
    productions         those of a parent that are on their way go to the one child that has the
                        parent's lowest key. They keep channel and numbers; the child numbers its
                        own productions in a channel of its own
    counters            as productions
    watermark, floor    the highest of the parents': both were published for the whole node

Sources and sinks are not split: other systems refer to their shards, by partitions and by the names
of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, groupby, islice
from operator import itemgetter

from millwheel.adapters.ports import StateStore
from millwheel.core.formats.id_runs import runs_within
from millwheel.core.formats.number_runs import numbers_within
from millwheel.core.formats.store_layout import (
    ARCHIVE,
    CHANNEL,
    CLEARED,
    COLUMNS,
    EXPIRED,
    HASHED,
    META,
    NUMBERS,
    PENDING,
    RUNS,
    SEEN,
    SLICE,
    SLICE_IDLE,
    Meta,
    decode_meta,
    encode_meta,
    number8,
)
from millwheel.core.model.names import ShardName
from millwheel.core.model.range_table import Parent, ShardEntry
from millwheel.core.model.ranges import KeyRange
from millwheel.engine.workers.delivery.high_water_marks import (
    decode_high_water_marks,
    encode_high_water_marks,
    joined_high_water_marks,
)
from millwheel.engine.workers.state.archive import archives_within
from millwheel.engine.workers.state.column_segments import segment_entry, segments_within
from millwheel.engine.workers.state.waiting_records import waiting_within
from millwheel.errors import invariant

_AT_ONCE = 10_000  # entries of a parent that are written together
_HASH = slice(1, 9)
_SEEN_HASH = slice(9, 17)
_SLICE_HASH = slice(10, 18)
Entry = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Estate:
    """A parent, its whole store, and the part of its range that goes to the successor."""

    parent: Parent
    store: StateStore
    share: KeyRange
    meta: Meta

    @staticmethod
    def of(parent: Parent, store: StateStore, successor: KeyRange) -> Estate:
        share = parent.range.overlap(successor)
        invariant(share is not None, f"{parent.shard} {parent.range} has nothing in {successor}")
        assert share is not None
        data = store.get(META)
        return Estate(
            parent, store, share, Meta(counters={}) if data is None else decode_meta(data)
        )

    @property
    def whole(self) -> bool:
        """Whether the successor also gets the indivisible state."""
        return self.share.lo == self.parent.range.lo


def inherit(entry: ShardEntry, estates: Sequence[Estate], store: StateStore) -> None:
    """Fill the empty ``store`` of ``entry`` with its share of each estate."""
    # The state of keys in a hole would be lost, that of keys in two shares be there twice.
    edges = [entry.range.lo]
    for share in sorted(estate.share for estate in estates):
        invariant(share.lo == edges[-1], f"{entry.shard} inherits {share} behind {edges[-1]:016x}")
        edges.append(share.hi)
    invariant(
        edges[-1] == entry.range.hi, f"{entry.shard} {entry.range} inherits only to {edges[-1]:x}"
    )
    pending, undivided = _pending(estates)
    entries = chain(
        *(_keyed(estate) for estate in estates),
        _marks(estates),
        _expired(estates),
        _runs(estates, RUNS, runs_within),
        _runs(estates, NUMBERS, numbers_within),
        _segments(entry.shard, estates),
        _archives(entry.shard, estates),
        _waiting(estates),
        pending,
        [(META, encode_meta(_meta(estates, undivided)))],
    )
    while some := list(islice(entries, _AT_ONCE)):
        store.apply(some, [])


def _keyed(estate: Estate) -> Iterator[Entry]:
    """The state stored by key."""
    for number in HASHED:
        yield from _within(estate, bytes([number]), _HASH)
    for family in (SEEN, SLICE_IDLE):
        yield from _within(estate, family, _SEEN_HASH)
    yield from _within(estate, SLICE, _SLICE_HASH)


def _within(estate: Estate, family: bytes, where: slice) -> Iterator[Entry]:
    share = estate.share
    lo, last = share.lo.to_bytes(8, "big"), (share.hi - 1).to_bytes(8, "big")
    for store_key, value in estate.store.scan(family):
        if lo <= store_key[where] <= last:
            yield store_key, value


def _marks(estates: Sequence[Estate]) -> Iterator[Entry]:
    estate_marks = [
        {channel: decode_high_water_marks(data) for channel, data in estate.store.scan(CHANNEL)}
        for estate in estates
    ]
    for channel in sorted({channel for marks in estate_marks for channel in marks}):
        parts = [
            (estate.share, marks.get(channel, 0))
            for estate, marks in zip(estates, estate_marks, strict=True)
        ]
        yield channel, encode_high_water_marks(joined_high_water_marks(parts))


def _expired(estates: Sequence[Estate]) -> Iterator[Entry]:
    for entry in (EXPIRED, CLEARED):
        times = [data for estate in estates if (data := estate.store.get(entry)) is not None]
        if times:
            yield entry, max(times)  # byte order is the order of times


def _runs(
    estates: Sequence[Estate],
    family: bytes,
    within: Callable[[Iterable[Entry], KeyRange], Iterator[Entry]],
) -> Iterator[Entry]:
    """The runs of ids, or of numbers. The parts of one that was divided are one again."""
    parts = merge(*(within(estate.store.scan(family), estate.share) for estate in estates))
    for store_key, same in groupby(parts, itemgetter(0)):
        yield store_key, b"".join(run for _, run in same)


def _segments(shard: ShardName, estates: Sequence[Estate]) -> Iterator[Entry]:
    number = 0
    for estate in estates:
        if next(iter(estate.store.scan(COLUMNS)), None) is None:
            continue
        closed = estate.meta.watermark if estate.meta.closed is None else estate.meta.closed
        for segment in segments_within(estate.store, estate.share, closed):
            yield segment_entry(shard, number, segment)
            number += 1


def _archives(shard: ShardName, estates: Sequence[Estate]) -> Iterator[Entry]:
    number = 0
    for estate in estates:
        for entry in archives_within(shard, estate.store, estate.share, number):
            number += entry[0].startswith(ARCHIVE)
            yield entry


def _waiting(estates: Sequence[Estate]) -> Iterator[Entry]:
    number = 0
    for estate in estates:
        for entry in waiting_within(estate.store, estate.share, number):
            number += 1
            yield entry


def _pending(estates: Sequence[Estate]) -> tuple[list[Entry], int]:
    """Chunks that are on their way, under new keys in the store, and the number after the last
    one."""
    entries: list[Entry] = []
    for estate in estates:
        if estate.whole:
            for _, data in estate.store.scan(PENDING):
                entries.append((PENDING + number8(len(entries) + 1), data))
    return entries, len(entries) + 1


def _meta(estates: Sequence[Estate], next_chunk: int) -> Meta:
    """``number`` is that of the parent with the most commits: it only has to be the same for every
    owner."""
    metas = [estate.meta for estate in estates]
    counters: dict[str, int] = {}
    for estate in estates:
        if estate.whole:
            for name, total in estate.meta.counters.items():
                counters[name] = counters.get(name, 0) + total
    # The watermark and the floor are the highest, since they were published. Of the times up to
    # which windows are closed the lowest counts: the windows above it are still in the segments of
    # one parent.
    closed = [meta.watermark if meta.closed is None else meta.closed for meta in metas]
    # Windows between the two would be gone, and have never fired.
    invariant(
        min(closed) <= max(meta.watermark for meta in metas),
        f"windows are closed up to {closed}, above the watermarks of {len(metas)} parents",
    )
    return Meta(
        number=max(meta.number for meta in metas),
        next_chunk=next_chunk,
        counters=counters,
        watermark=max(meta.watermark for meta in metas),
        floor=max(meta.floor for meta in metas),
        closed=min(closed),
    )
