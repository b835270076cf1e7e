"""Which external ids a shard has applied: a Bloom filter in front of an exact set.

Ids are kept in buckets of event time, about ten of them, and an id is looked for in all of them: copies may have
different timestamps. The filter of a bucket (``bloom_filter.py``) answers "certainly new"; every "maybe" is looked up
in the store, so a false positive costs a read and never a record. A bucket found in the store after a restart has no
filter: every id is looked up in it. A bucket is dropped once the watermark has left it more than the horizon behind.

An id is stored as the 128-bit xxh3 of stream, key and id: streams number their records each for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import numpy as np
import xxhash

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.formats.store_layout import SEEN, number8, number_from8
from millwheel.core.model.keys import KeyHash, key_hash
from millwheel.core.model.times import SECOND
from millwheel.ports import StateStore
from millwheel.workers.bundle.bundle import Bundle
from millwheel.workers.shard.bloom_filter import BucketFilter, Words
from millwheel.workers.state.overlay import Overlay

MIN_SPAN_US = 60 * SECOND  # of a bucket: shorter horizons need no more of them
_BUCKETS_PER_HORIZON = 8  # ids are forgotten in steps of an eighth
_BEHIND_ALL = b"\xff" * 25
"""Behind every mark of a bucket: they have 24 bytes."""
_encode = msgspec.msgpack.Encoder().encode


class SeenIds:
    """The ids one shard has applied.

    ``asked`` counts the ids that were given, ``doubted`` those of them that the filters could not call new,
    ``checked`` exact look-ups (one per such id and bucket), ``confirmed`` those that found a duplicate.
    """

    def __init__(self, store: StateStore, overlay: Overlay, horizon_us: int, hashed: KeyHash = key_hash) -> None:
        self._hashed = hashed
        self._store = store
        self._overlay = overlay
        self._horizon_us = horizon_us
        self._span_us = max(MIN_SPAN_US, horizon_us // _BUCKETS_PER_HORIZON)
        self._filters: dict[int, BucketFilter] = {}
        self._unfiltered = {number_from8(key[1:9]) for key in _first_of_buckets(store)}
        self.asked = 0
        self.doubted = 0
        self.checked = 0
        self.confirmed = 0

    @property
    def filter_bytes(self) -> int:
        """The memory of the filters of all buckets."""
        return sum(bloom.size_bytes for bloom in self._filters.values())

    def drop_copies(self, bundle: Bundle) -> None:
        """Leave only those arrivals in a bundle that were not applied before, and mark them as applied."""
        kept = []
        for arrival in bundle.arrivals:
            if arrival.batch.ids is not None and len(arrival.batch):
                indexes = self.fresh(arrival.batch)
                if dropped := len(arrival.batch) - len(indexes):
                    bundle.count(f"duplicates.{arrival.batch.stream}", dropped)
                    arrival = replace(arrival, batch=_picked(arrival.batch, indexes), duplicates=dropped)
            kept.append(arrival)
        bundle.arrivals = kept

    def fresh(self, batch: AnyBatch) -> list[int]:
        """The indexes of the records in ``batch``, which has ids, that were not applied before; marks them as
        applied."""
        assert batch.ids is not None
        ids = list(batch.ids)
        keys = key_list(batch.keys) if isinstance(batch, ColumnBatch) else batch.keys
        indexes = [index for index, given in enumerate(ids) if given is not None]
        if not indexes:
            return list(range(len(ids)))
        # One scheme for rows and columns: copies of a record may come in either form.
        digests = [xxhash.xxh3_128_digest(_encode((batch.stream, keys[index], ids[index]))) for index in indexes]
        heads = {key: self._hashed(key).to_bytes(8, "big") for key in {keys[index] for index in indexes}}
        marks = [heads[keys[index]] + digest for index, digest in zip(indexes, digests, strict=True)]
        seen = self._seen_before(marks, digests)
        fresh: list[int] = []
        for number, mark in enumerate(marks):
            if mark not in seen:
                seen.add(mark)
                fresh.append(number)
        self._remember([int(batch.timestamps[indexes[number]]) for number in fresh], marks, digests, fresh)
        kept = {indexes[number] for number in fresh}
        return [index for index, given in enumerate(ids) if given is None or index in kept]

    def _seen_before(self, marks: list[bytes], digests: list[bytes]) -> set[bytes]:
        """Those of the marks that lie in any bucket: filters first, then the exact set for every "maybe"."""
        self.asked += len(marks)
        low, high = _words(digests)
        suspects: list[tuple[bytes, bytes]] = []
        for start in self._filters.keys() | self._unfiltered:
            prefix = SEEN + number8(start)
            if start in self._unfiltered:
                suspects += [(prefix + mark, mark) for mark in marks]
                continue
            maybe = np.flatnonzero(self._filters[start].maybe(low, high)).tolist()
            suspects += [(prefix + marks[number], marks[number]) for number in maybe]
        if not suspects:
            return set()
        self.doubted += len({mark for _, mark in suspects})
        self.checked += len(suspects)
        found = self._overlay.get_many([store_key for store_key, _ in suspects])
        known = {mark for (_, mark), value in zip(suspects, found, strict=True) if value is not None}
        self.confirmed += len(known)
        return known

    def _remember(self, times: list[int], marks: list[bytes], digests: list[bytes], fresh: list[int]) -> None:
        by_bucket: dict[int, list[int]] = {}
        span = self._span_us
        for timestamp, number in zip(times, fresh, strict=True):
            by_bucket.setdefault(timestamp - timestamp % span, []).append(number)
        for start, numbers in by_bucket.items():
            bloom = self._filters.get(start)
            if bloom is None:
                bloom = self._filters[start] = BucketFilter()
            bloom.add(*_words([digests[number] for number in numbers]))
            prefix = SEEN + number8(start)
            for number in numbers:
                self._overlay.put(prefix + marks[number], b"")

    def forget_before(self, watermark: int) -> None:
        """Drop the buckets that the watermark has left more than the horizon behind."""
        limit = watermark - self._horizon_us - self._span_us
        for start in [start for start in (self._filters.keys() | self._unfiltered) if start < limit]:
            self._filters.pop(start, None)
            self._unfiltered.discard(start)
            self._store.delete_range(SEEN + number8(start), SEEN + number8(start + 1))


def _picked(batch: AnyBatch, indexes: list[int]) -> AnyBatch:
    if not isinstance(batch, ColumnBatch):
        return batch.pick(indexes)
    mask = np.zeros(len(batch), np.bool_)
    mask[indexes] = True
    return batch.where(mask)


def _words(digests: list[bytes]) -> tuple[Words, Words]:
    words = np.frombuffer(b"".join(digests), dtype=np.uint64)
    return words[0::2], words[1::2]


def _first_of_buckets(store: StateStore) -> Iterator[bytes]:
    """One key of every bucket in the store. Buckets have very many."""
    key = store.first(SEEN, SEEN)
    while key is not None:
        yield key
        key = store.first(SEEN, key[:9] + _BEHIND_ALL)
