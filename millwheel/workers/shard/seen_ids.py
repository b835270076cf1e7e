"""Which external ids a shard has applied: a Bloom filter in front of an exact set.

Ids are kept in buckets of event time, about ten of them, and an id is looked for in all of them: copies may have
different timestamps. The filter of a bucket (``bloom_filter.py``) answers "certainly new"; every "maybe" is looked up
in the exact set, so a false positive costs a search and never a record. A bucket is dropped once the watermark has left
it more than the horizon behind.

An id is known by the 128-bit xxh3 of stream, key and id: streams number their records each for itself. The ids that a
bundle adds to a bucket are one *run*, one entry of the store; small runs become larger ones, eight at a time. Their
digests are in memory, too, sorted. Beyond ``_HELD`` ids further ones are entries of their own, which are looked up in
the store. So are those of stores from before there were runs; such a bucket has no filter after a restart, so every id
is looked up in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.formats.id_runs import MARK, Marks, Words, marks_from, marks_of, run_key
from millwheel.core.formats.store_layout import RUNS, SEEN, number8, number_from8
from millwheel.core.model.keys import Key, KeyHash, key_hash
from millwheel.core.model.records import without
from millwheel.core.model.times import SECOND
from millwheel.ports import StateStore
from millwheel.workers.bundle.bundle import Bundle
from millwheel.workers.shard.bloom_filter import BitsOf, BucketFilter
from millwheel.workers.state.overlay import Overlay
from millwheel.workers.state.runs import Runs

MIN_SPAN_US = 60 * SECOND  # of a bucket: shorter horizons need no more of them
_BUCKETS_PER_HORIZON = 8  # ids are forgotten in steps of an eighth
_BEHIND_ALL = b"\xff" * 25
"""Behind every mark of a bucket: they have 24 bytes."""
_HELD = 4_000_000
"""Ids of a shard whose digests are in memory (16 bytes each); further ones are entries of their own."""
_HEADS_KEPT = 200_000  # keys whose hashes are remembered
_encode = msgspec.msgpack.Encoder().encode
Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


class SortedDigests:
    """An exact set of digests: arrays sorted by their lower halves, each more than twice as long as the next one."""

    def __init__(self) -> None:
        self._parts: list[tuple[Words, Words]] = []

    def __len__(self) -> int:
        return sum(len(low) for low, _ in self._parts)

    def add(self, low: Words, high: Words) -> None:
        """Add digests that are not in it."""
        order = np.argsort(low)
        low, high = low[order], high[order]
        while self._parts and len(self._parts[-1][0]) <= 2 * len(low):
            more_low, more_high = self._parts.pop()
            low, high = np.concatenate([more_low, low]), np.concatenate([more_high, high])
            order = np.argsort(low, kind="stable")  # finds the two sorted stretches, and merges them
            low, high = low[order], high[order]
        self._parts.append((low, high))

    def contains(self, low: Words, high: Words) -> Bools:
        """Which of the digests are in it."""
        found = np.zeros(len(low), np.bool_)
        for part_low, part_high in self._parts:
            first = np.searchsorted(part_low, low)
            at = np.minimum(first, len(part_low) - 1)
            same = part_low[at] == low
            found |= same & (part_high[at] == high)
            for index in np.flatnonzero(same & ~found).tolist():  # two digests with one lower half
                last = int(np.searchsorted(part_low, low[index], side="right"))
                found[index] = bool((part_high[first[index] : last] == high[index]).any())
        return found


class _Bucket:
    """The ids of one bucket. ``filter`` is None where single entries of the store have none."""

    def __init__(self, runs: Runs) -> None:
        self.filter: BucketFilter | None = BucketFilter()
        self.held = SortedDigests()
        self.singles = False
        self.runs = runs

    def maybe(self, bits_of: BitsOf) -> Int64s:
        """The indexes of the digests that may be in it."""
        return np.arange(bits_of.count) if self.filter is None else self.filter.maybe(bits_of)


class SeenIds:
    """The ids one shard has applied.

    ``asked`` counts the ids that were given, ``doubted`` those of them that the filters could not call new,
    ``checked`` exact look-ups (one per such id and bucket), ``confirmed`` those that found a duplicate.
    """

    def __init__(
        self, store: StateStore, overlay: Overlay, horizon_us: int, hashed: KeyHash = key_hash, shard: str = ""
    ) -> None:
        self._hashed = hashed
        self._shard = shard
        self._store = store
        self._overlay = overlay
        self._horizon_us = horizon_us
        self._span_us = max(MIN_SPAN_US, horizon_us // _BUCKETS_PER_HORIZON)
        self._buckets: dict[int, _Bucket] = {}
        self._heads: dict[Key, int] = {}
        for store_key, run in store.scan(RUNS):
            self._restore(store_key, run)
        for store_key in _first_of_buckets(store):
            bucket = self._bucket(number_from8(store_key[1:9]))
            bucket.singles, bucket.filter = True, None
        self.asked = 0
        self.doubted = 0
        self.checked = 0
        self.confirmed = 0

    @property
    def filter_bytes(self) -> int:
        """The memory of the filters of all buckets."""
        return sum(each.filter.size_bytes for each in self._buckets.values() if each.filter is not None)

    def drop_copies(self, bundle: Bundle) -> None:
        """Leave only those arrivals in a bundle that were not applied before, and mark them as applied."""
        kept = []
        for arrival in bundle.arrivals:
            if arrival.batch.ids is not None and len(arrival.batch):
                fresh = self.fresh(arrival.batch)
                if dropped := len(arrival.batch) - int(np.count_nonzero(fresh)):
                    bundle.count(f"duplicates.{arrival.batch.stream}", dropped)
                    arrival = replace(arrival, batch=_picked(arrival.batch, fresh), duplicates=dropped)
            kept.append(arrival)
        bundle.arrivals = kept

    def fresh(self, batch: AnyBatch) -> Bools:
        """Which of the records in ``batch``, which has ids, were not applied before; marks them as applied."""
        assert batch.ids is not None
        ids = list(batch.ids)
        keys = key_list(batch.keys) if isinstance(batch, ColumnBatch) else batch.keys
        times = np.asarray(batch.timestamps, np.int64)
        fresh = np.ones(len(ids), np.bool_)
        named: Any = slice(None)
        if None in ids:
            named = np.array([given is not None for given in ids], np.bool_)
            if not named.any():
                return fresh
            rows = np.flatnonzero(named)
            keys, ids, times = [keys[row] for row in rows], [ids[row] for row in rows], times[rows]
        # One scheme for rows and columns: copies of a record may come in either form.
        stream = batch.stream
        digests = list(map(xxhash.xxh3_128_digest, map(_encode, zip(repeat(stream), keys, ids))))
        marks = marks_of(self._heads_of(keys), digests)
        low, high = _halves(marks)
        new = ~self._seen_before(marks, low, high)
        if _any_twice(low):
            new &= _first_of_each(low, high)
        self._remember(times[new], marks[new])
        fresh[named] = new
        return fresh

    def _heads_of(self, keys: Sequence[Key]) -> list[int]:
        """The hash of each key."""
        try:
            return list(map(self._heads.__getitem__, keys))
        except KeyError:
            pass
        if len(self._heads) > _HEADS_KEPT:
            self._heads.clear()
        distinct = set(keys)
        self._heads.update(zip(distinct, map(self._hashed, distinct), strict=True))
        return list(map(self._heads.__getitem__, keys))

    def _seen_before(self, marks: Marks, low: Words, high: Words) -> Bools:
        """Which of the marks lie in any bucket: filters first, then the exact set for every "maybe"."""
        self.asked += len(marks)
        doubted, seen = np.zeros(len(marks), np.bool_), np.zeros(len(marks), np.bool_)
        singles: list[tuple[bytes, int]] = []
        bits_of = BitsOf(low, high)
        for start, bucket in self._buckets.items():
            maybe = bucket.maybe(bits_of)
            if not len(maybe):
                continue
            doubted[maybe] = True
            self.checked += len(maybe)
            held = bucket.held.contains(low[maybe], high[maybe])
            seen[maybe[held]] = True
            if bucket.singles:
                prefix = SEEN + number8(start)
                singles += [(prefix + marks[index].tobytes(), index) for index in maybe[~held].tolist()]
        if singles:
            values = self._overlay.get_many([store_key for store_key, _ in singles])
            seen[[index for (_, index), value in zip(singles, values, strict=True) if value is not None]] = True
        self.doubted += int(np.count_nonzero(doubted))
        self.confirmed += int(np.count_nonzero(seen))
        return seen

    def _remember(self, times: Int64s, marks: Marks) -> None:
        starts = times - np.mod(times, self._span_us)
        for start in _different(starts):
            mine = marks[starts == start]
            bucket = self._bucket(start)
            low, high = _halves(mine)
            if bucket.filter is not None:
                bucket.filter.add(low, high)
            if sum(len(each.held) for each in self._buckets.values()) + len(mine) > _HELD:
                bucket.singles = True
                prefix = SEEN + number8(start)
                for mark in mine:
                    self._overlay.put(prefix + mark.tobytes(), b"")
                continue
            bucket.held.add(low, high)
            bucket.runs.write(mine.tobytes())

    def _restore(self, store_key: bytes, run: bytes) -> None:
        bucket = self._bucket(number_from8(store_key[1:9]))
        low, high = _halves(marks_from(run))
        assert bucket.filter is not None
        bucket.filter.add(low, high)
        bucket.held.add(low, high)
        bucket.runs.restore(store_key, number_from8(store_key[9:17]), len(run))

    def _bucket(self, start: int) -> _Bucket:
        found = self._buckets.get(start)
        if found is None:
            key_of = lambda number: run_key(start, number, self._shard)  # noqa: E731
            found = self._buckets[start] = _Bucket(Runs(self._overlay, key_of, MARK.itemsize))
        return found

    def forget_before(self, watermark: int) -> None:
        """Drop the buckets that the watermark has left more than the horizon behind."""
        limit = watermark - self._horizon_us - self._span_us
        for start in [start for start in self._buckets if start < limit]:
            del self._buckets[start]
            for family in (SEEN, RUNS):
                self._store.delete_range(family + number8(start), family + number8(start + 1))


def _halves(marks: Marks) -> tuple[Words, Words]:
    return np.ascontiguousarray(marks["low"]), np.ascontiguousarray(marks["high"])


def _different(numbers: Int64s) -> list[int]:
    """The different numbers, in order. Often there is one."""
    if len(numbers) and numbers.min() == numbers.max():
        return [int(numbers[0])]
    return np.unique(numbers).tolist()  # type: ignore[no-any-return]


def _any_twice(words: Words) -> bool:
    """Whether a word may be there twice."""
    words = np.sort(words)
    return bool((words[1:] == words[:-1]).any())


def _first_of_each(low: Words, high: Words) -> Bools:
    """Which digests have no equal one before them."""
    order = np.argsort(low)
    same = low[order[1:]] == low[order[:-1]]
    shared = np.zeros(len(low), np.bool_)  # their lower half, with another one
    shared[1:] = same
    shared[:-1] |= same
    rows = order[shared]
    rows = rows[np.lexsort((rows, high[rows], low[rows]))]
    again = (low[rows[1:]] == low[rows[:-1]]) & (high[rows[1:]] == high[rows[:-1]])
    found = np.ones(len(low), np.bool_)
    found[rows[1:][again]] = False
    return found


def _picked(batch: AnyBatch, kept: Bools) -> AnyBatch:
    if isinstance(batch, ColumnBatch):
        return batch.where(kept)
    return without(batch, np.flatnonzero(~kept).tolist())


def _first_of_buckets(store: StateStore) -> Iterator[bytes]:
    """One key of every bucket in the store that has entries of single ids. Buckets have very many."""
    key = store.first(SEEN, SEEN)
    while key is not None:
        yield key
        key = store.first(SEEN, key[:9] + _BEHIND_ALL)
