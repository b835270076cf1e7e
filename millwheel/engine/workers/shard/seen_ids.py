"""Which external ids a shard has applied: a Bloom filter in front of an exact set.

Ids are kept in buckets of event time, and an id is looked for in all of them: copies may have
different timestamps. Mostly there are about ten, with many ids each, but input whose times are far
apart makes many, with few each. Few ids are one exact set for all such buckets. The filter of a
bucket with many (``bloom_filter.py``) answers "certainly new"; every "maybe" is looked up in its
exact set, so a false positive costs a search and never a record. A bucket is dropped once the
watermark has left it more than the horizon behind.

An id is identified by the 128-bit xxh3 of stream, key and id: each stream numbers its records for
itself. The ids that a bundle adds to a bucket are one *run*, one entry of the store; small runs
become larger ones, eight at a time. Their digests are in memory, too, sorted. Beyond ``_HELD`` ids
further ones are entries of their own, which are looked up in the store. So are those of stores from
before there were runs; such a bucket has no filter after a restart, so every id is looked up in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from millwheel.adapters.ports import StateStore
from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.formats.id_runs import MARK, Marks, Words, marks_from, marks_of, run_key
from millwheel.core.formats.store_layout import RUNS, SEEN, number8, number_from8
from millwheel.core.model.keys import Key, KeyHash, key_hash
from millwheel.core.model.records import without
from millwheel.core.model.times import MAX_TIME, SECOND
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.shard.bloom_filter import BitsOf, BucketFilter
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.runs import Runs
from millwheel.errors import InvariantError, invariant

MIN_SPAN_US = 60 * SECOND  # of a bucket: shorter horizons need no more of them
_BUCKETS_PER_HORIZON = 8  # ids are forgotten in steps of an eighth
_BEHIND_ALL = b"\xff" * 25
"""Behind every mark of a bucket: they have 24 bytes."""
_HELD = 4_000_000
"""Ids of a shard whose digests are in memory (16 bytes each); further ones are entries of their
own."""
_FEW_IDS = 8_192
"""Up to this many ids of a bucket are looked for together with those of all such buckets: times
that are far apart make many buckets, and a filter for each would be larger than its ids."""
_HEADS_KEPT = 200_000  # keys whose hashes are remembered
_encode = msgspec.msgpack.Encoder().encode
Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


class SortedDigests:
    """An exact set of digests: arrays sorted by their lower halves, each more than twice as long as
    the next one. Each digest may have ``starts`` beside it, the bucket that it is of."""

    def __init__(self) -> None:
        self._parts: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return sum(len(part[0]) for part in self._parts)

    def add(self, low: Words, high: Words, *starts: Int64s) -> None:
        """Add digests that are not in it."""
        if not len(low):
            return
        part = _sorted((low, high, *starts), "quicksort")
        while self._parts and len(self._parts[-1][0]) <= 2 * len(part[0]):
            both = zip(self._parts.pop(), part, strict=True)
            # A stable sort finds the two sorted stretches, and merges them.
            part = _sorted(tuple(np.concatenate(pair) for pair in both), "stable")
        self._parts.append(part)

    def contains(self, low: Words, high: Words) -> Bools:
        """Which of the digests are in it."""
        mask = np.zeros(len(low), np.bool_)
        for part_low, part_high, *_ in self._parts:
            first = np.searchsorted(part_low, low)
            at = np.minimum(first, len(part_low) - 1)
            same = part_low[at] == low
            mask |= same & (part_high[at] == high)
            for index in np.flatnonzero(same & ~mask).tolist():  # two digests with one lower half
                last = int(np.searchsorted(part_low, low[index], side="right"))
                mask[index] = bool((part_high[first[index] : last] == high[index]).any())
        return mask

    def take_out(self, starts: Collection[int]) -> tuple[Words, Words]:
        """Remove the digests of some buckets."""
        parts, self._parts = self._parts, []
        digests = [(np.array([], np.uint64), np.array([], np.uint64))]
        for low, high, of in parts:
            gone = np.isin(of, np.fromiter(starts, np.int64))
            digests.append((low[gone], high[gone]))
            self.add(low[~gone], high[~gone], of[~gone])
        return np.concatenate([low for low, _ in digests]), np.concatenate(
            [high for _, high in digests]
        )


def _sorted(part: tuple[Any, ...], kind: Literal["quicksort", "stable"]) -> tuple[Any, ...]:
    order = np.argsort(part[0], kind=kind)
    return tuple(column[order] for column in part)


class _Bucket:
    """The ids of one bucket of event time, as ``runs`` in the store. While there are ``few`` they
    lie in memory with those of all other such buckets. ``held`` and ``filter`` are its own once
    there are more. ``singles``: it has single entries in the store; no filter covers those of
    an earlier opening."""

    def __init__(self, runs: Runs) -> None:
        self.few = 0
        self.filter: BucketFilter | None = None
        self.held: SortedDigests | None = None
        self.singles = False
        self.runs = runs

    @property
    def apart(self) -> bool:
        """Whether it must be probed by itself."""
        return self.held is not None or self.singles

    def maybe(self, bits_of: BitsOf) -> Int64s:
        """The indexes of the digests that may be in its own set."""
        return np.arange(bits_of.count) if self.filter is None else self.filter.maybe(bits_of)


class SeenIds:
    """The ids one shard has applied.

    ``asked`` counts the ids that were given, ``doubted`` those of them that the filters could not
    call new, ``checked`` exact look-ups (one per such id and bucket), ``confirmed`` those that
    found a duplicate.
    """

    def __init__(
        self,
        store: StateStore,
        overlay: Overlay,
        horizon_us: int,
        hashed: KeyHash = key_hash,
        shard: str = "",
    ) -> None:
        self._hashed = hashed
        self._shard = shard
        self._store = store
        self._overlay = overlay
        self._horizon_us = horizon_us
        self._span_us = max(MIN_SPAN_US, horizon_us // _BUCKETS_PER_HORIZON)
        self._buckets: dict[int, _Bucket] = {}
        self._apart: dict[int, _Bucket] = {}
        self._first_start = MAX_TIME
        self._few = SortedDigests()
        self._count = 0  # of those in memory
        self._heads: dict[Key, int] = {}
        for store_key, run in store.scan(RUNS):
            self._restore(store_key, run)
        for store_key in _first_of_buckets(store):
            bucket = self._bucket(number_from8(store_key[1:9]))
            bucket.singles, bucket.filter = True, None
        self._apart = {start: bucket for start, bucket in self._buckets.items() if bucket.apart}
        self.asked = 0
        self.doubted = 0
        self.checked = 0
        self.confirmed = 0

    @property
    def filter_bytes(self) -> int:
        """The memory of the filters of all buckets."""
        return sum(
            each.filter.size_bytes for each in self._buckets.values() if each.filter is not None
        )

    def drop_copies(self, bundle: Bundle) -> None:
        """Leave only those arrivals in a bundle that were not applied before, and mark them as
        applied."""
        arrivals = []
        for arrival in bundle.arrivals:
            if arrival.batch.ids is not None and len(arrival.batch):
                fresh = self.fresh(arrival.batch)
                if dropped := len(arrival.batch) - int(np.count_nonzero(fresh)):
                    bundle.count(f"duplicates.{arrival.batch.stream}", dropped)
                    arrival = replace(
                        arrival, batch=_picked(arrival.batch, fresh), duplicates=dropped
                    )
            arrivals.append(arrival)
        bundle.arrivals = arrivals

    def fresh(self, batch: AnyBatch) -> Bools:
        """Which of the records in ``batch``, which has ids, were not applied before; marks them as
        applied."""
        assert batch.ids is not None
        ids = list(batch.ids)
        keys = key_list(batch.keys) if isinstance(batch, ColumnBatch) else batch.keys
        times = np.asarray(batch.timestamps, np.int64)
        fresh = np.ones(len(ids), np.bool_)
        named: Any = slice(None)
        if None in ids:
            named = np.array([each is not None for each in ids], np.bool_)
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
        """Which of the marks lie in any bucket: filters first, then the exact set for every
        "maybe"."""
        self.asked += len(marks)
        seen = self._few.contains(low, high)
        doubted = seen.copy()
        self.checked += int(np.count_nonzero(seen))
        singles: list[tuple[bytes, int]] = []
        bits_of = BitsOf(low, high)
        for start, bucket in self._apart.items():
            maybe = bucket.maybe(bits_of)
            if not len(maybe):
                continue
            doubted[maybe] = True
            self.checked += len(maybe)
            held = np.zeros(len(maybe), np.bool_)
            if bucket.held is not None:
                held = bucket.held.contains(low[maybe], high[maybe])
                seen[maybe[held]] = True
            if bucket.singles:
                prefix = SEEN + number8(start)
                singles += [
                    (prefix + marks[index].tobytes(), index) for index in maybe[~held].tolist()
                ]
        if singles:
            values = self._overlay.get_many([store_key for store_key, _ in singles])
            seen[
                [
                    index
                    for (_, index), value in zip(singles, values, strict=True)
                    if value is not None
                ]
            ] = True
        self.doubted += int(np.count_nonzero(doubted))
        self.confirmed += int(np.count_nonzero(seen))
        return seen

    def _remember(self, times: Int64s, marks: Marks) -> None:
        starts = times - np.mod(times, self._span_us)
        few: list[tuple[Words, Words, Int64s]] = []
        for start, rows in _by_value(starts):
            own_marks, bucket = marks[rows], self._bucket(start)
            low, high = _halves(own_marks)
            if self._count + len(own_marks) > _HELD:
                self._put_singles(start, bucket, own_marks)
                continue
            self._count += len(own_marks)
            bucket.runs.write(own_marks.tobytes())
            if bucket.held is None and bucket.few + len(own_marks) <= _FEW_IDS:
                bucket.few += len(own_marks)
                few.append((low, high, np.full(len(own_marks), start, np.int64)))
            else:
                self._set_apart(start, bucket, low, high)
        if few:
            self._few.add(*map(np.concatenate, zip(*few, strict=True)))

    def _set_apart(self, start: int, bucket: _Bucket, low: Words, high: Words) -> None:
        """Add ids to a bucket that is large enough for a filter of its own."""
        if bucket.held is None:
            bucket.held = SortedDigests()
            few_low, few_high = self._few.take_out((start,)) if bucket.few else (low[:0], high[:0])
            # An id that stays with the few is never forgotten; if one too many is removed, it is in
            # no bucket, and its copy is applied.
            invariant(
                len(few_low) == bucket.few,
                f"{self._shard}: of {bucket.few} ids of a bucket {len(few_low)} are there",
            )
            bucket.few = 0
            low, high = np.concatenate([few_low, low]), np.concatenate([few_high, high])
            if bucket.filter is None and not bucket.singles:
                bucket.filter = BucketFilter()
            self._apart[start] = bucket
        bucket.held.add(low, high)
        if bucket.filter is not None:
            bucket.filter.add(low, high)

    def _put_singles(self, start: int, bucket: _Bucket, marks: Marks) -> None:
        """Store ids beyond those in memory as entries of their own."""
        if not bucket.apart:
            bucket.filter = BucketFilter(_FEW_IDS)
        self._apart[start] = bucket
        bucket.singles = True
        if bucket.filter is not None:
            bucket.filter.add(*_halves(marks))
        prefix = SEEN + number8(start)
        for mark in marks:
            self._overlay.put(prefix + mark.tobytes(), b"")

    def _restore(self, store_key: bytes, run: bytes) -> None:
        start = number_from8(store_key[1:9])
        bucket = self._bucket(start)
        low, high = _halves(marks_from(run))
        bucket.runs.restore(store_key, number_from8(store_key[9:17]), len(run))
        self._count += len(low)
        if bucket.held is None and bucket.few + len(low) <= _FEW_IDS:
            bucket.few += len(low)
            self._few.add(low, high, np.full(len(low), start, np.int64))
        else:
            self._set_apart(start, bucket, low, high)

    def _bucket(self, start: int) -> _Bucket:
        bucket = self._buckets.get(start)
        if bucket is None:
            self._first_start = min(self._first_start, start)
            key_of = lambda number: run_key(start, number, self._shard)  # noqa: E731
            bucket = self._buckets[start] = _Bucket(Runs(self._overlay, key_of, MARK.itemsize))
        return bucket

    def forget_before(self, watermark: int) -> None:
        """Drop the buckets that the watermark has left more than the horizon behind."""
        limit = watermark - self._horizon_us - self._span_us
        if not self._buckets or self._first_start >= limit:
            return
        gone = {
            start: self._buckets.pop(start)
            for start in [start for start in self._buckets if start < limit]
        }
        self._first_start = min(self._buckets, default=MAX_TIME)
        if few := [start for start, bucket in gone.items() if bucket.few]:
            out, counted = len(self._few.take_out(few)[0]), sum(gone[start].few for start in few)
            # The pair of the count that a bucket keeps as it takes ids in.
            invariant(
                out == counted, f"{self._shard}: {counted} ids are to leave, but {out} are there"
            )
            self._count -= out
        for start, bucket in gone.items():
            self._apart.pop(start, None)
            self._count -= 0 if bucket.held is None else len(bucket.held)
            for family in (SEEN, RUNS):
                self._store.delete_range(family + number8(start), family + number8(start + 1))
        # Too low a count would let ids into memory without a bound; below 0 it certainly is.
        if self._count < 0:
            raise InvariantError(f"{self._shard}: {self._count} ids are in memory")


def _halves(marks: Marks) -> tuple[Words, Words]:
    return np.ascontiguousarray(marks["low"]), np.ascontiguousarray(marks["high"])


def _by_value(numbers: Int64s) -> Iterator[tuple[int, Any]]:
    """(number, its indexes) for the different numbers, in order. Often there is one."""
    if not len(numbers) or numbers.min() == numbers.max():
        yield from [(int(number), slice(None)) for number in numbers[:1]]
        return
    order = np.argsort(numbers, kind="stable")
    different, first = np.unique(numbers[order], return_index=True)
    yield from zip(different.tolist(), np.split(order, first[1:]), strict=True)


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
    mask = np.ones(len(low), np.bool_)
    mask[rows[1:][again]] = False
    return mask


def _picked(batch: AnyBatch, mask: Bools) -> AnyBatch:
    if isinstance(batch, ColumnBatch):
        return batch.where(mask)
    return without(batch, np.flatnonzero(~mask).tolist())


def _first_of_buckets(store: StateStore) -> Iterator[bytes]:
    """One key of every bucket in the store that has entries of single ids. Buckets have very
    many."""
    key = store.first(SEEN, SEEN)
    while key is not None:
        yield key
        key = store.first(SEEN, key[:9] + _BEHIND_ALL)
