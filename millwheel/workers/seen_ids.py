"""Which external ids a shard has applied: a Bloom filter in front of an exact set.

Ids are kept in buckets of event time. The filter of a bucket (sized by pybloom-live, probed for a whole batch
at once) answers "certainly new"; every "maybe" is looked up in the store, so a false positive costs a read
and never a record. A bucket found in the store after a restart has no filter: each of its ids is looked up.
A bucket is dropped once the watermark has left its horizon behind: a later duplicate is late by then.

An id is stored as the 128-bit xxh3 of key and id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash
from pybloom_live import BloomFilter

from millwheel.core.keys import key_hash
from millwheel.core.layout import SEEN, number8, number_from8
from millwheel.core.records import Batch
from millwheel.core.times import SECOND
from millwheel.ports import StateStore
from millwheel.workers.overlay import Overlay

BUCKET_US = 60 * SECOND
_CAPACITY = 100_000
_ERROR_RATE = 0.001
_encode = msgspec.msgpack.Encoder().encode
_Words = npt.NDArray[np.uint64]


class BucketFilter:
    """The filters of one bucket: pybloom-live filters, each probed and filled with whole batches."""

    def __init__(self) -> None:
        self._filters: list[tuple[BloomFilter, npt.NDArray[np.uint8], int]] = []
        self._room = 0

    def maybe(self, low: _Words, high: _Words) -> npt.NDArray[np.bool_]:
        """True where an id may have been added before."""
        found = np.zeros(len(low), dtype=np.bool_)
        for bloom, view, _ in self._filters:
            places = self._places(bloom, low, high)
            found |= ((view[places >> 3] >> (places & 7).astype(np.uint8)) & 1).all(axis=0)
        return found

    def add(self, low: _Words, high: _Words) -> None:
        """Remember ids; a new filter of twice the size follows when the last one is full."""
        if self._room < len(low):
            capacity = max(_CAPACITY << len(self._filters), 2 * len(low))
            bloom = BloomFilter(capacity, _ERROR_RATE)
            bloom.bitarray = type(bloom.bitarray)(len(bloom.bitarray), "little")
            bloom.bitarray.setall(False)
            view = np.frombuffer(bloom.bitarray, dtype=np.uint8)
            self._filters.append((bloom, view, capacity))
            self._room = capacity
        bloom, view, _ = self._filters[-1]
        places = self._places(bloom, low, high).ravel()
        np.bitwise_or.at(view, places >> 3, np.left_shift(np.uint8(1), (places & 7).astype(np.uint8)))
        self._room -= len(low)

    @staticmethod
    def _places(bloom: BloomFilter, low: _Words, high: _Words) -> npt.NDArray[np.int64]:
        slices = np.arange(bloom.num_slices, dtype=np.uint64)[:, None]
        width = np.uint64(bloom.bits_per_slice)
        places: npt.NDArray[np.uint64] = (low + slices * (high | np.uint64(1))) % width + slices * width
        return places.astype(np.int64)


class SeenIds:
    """The ids one shard has applied. ``checked`` and ``confirmed`` count exact look-ups and true duplicates."""

    def __init__(self, store: StateStore, overlay: Overlay, horizon_us: int) -> None:
        self._store = store
        self._overlay = overlay
        self._horizon_us = horizon_us
        self._filters: dict[int, BucketFilter] = {}
        self._unfiltered = {number_from8(key[1:9]) for key in _first_of_buckets(store)}
        self.checked = 0
        self.confirmed = 0

    def fresh(self, batch: Batch) -> list[int]:
        """The places of the records in ``batch`` that were not applied before; marks them as applied."""
        ids = batch.ids
        assert ids is not None
        digests = [
            xxhash.xxh3_128_digest(_encode((key, given))) if given is not None else b""
            for key, given in zip(batch.keys, ids, strict=True)
        ]
        by_bucket: dict[int, list[int]] = {}
        for place, timestamp in enumerate(batch.timestamps):
            by_bucket.setdefault(timestamp // BUCKET_US, []).append(place)
        kept = [place for place, given in enumerate(ids) if given is None]
        for bucket, places in by_bucket.items():
            kept += self._fresh_of(bucket, [place for place in places if digests[place]], digests, batch)
        return sorted(kept)

    def _fresh_of(self, bucket: int, places: list[int], digests: list[bytes], batch: Batch) -> list[int]:
        if not places:
            return []
        words = np.frombuffer(b"".join([digests[place] for place in places]), dtype=np.uint64)
        low, high = words[0::2], words[1::2]
        bloom = self._filters.get(bucket)
        if bloom is None:
            bloom = self._filters[bucket] = BucketFilter()
        maybe = bloom.maybe(low, high)
        if bucket in self._unfiltered:
            maybe[:] = True
        bloom.add(low, high)
        prefix = SEEN + number8(bucket)
        marks = [prefix + key_hash(batch.keys[place]).to_bytes(8, "big") + digests[place] for place in places]
        suspects = [mark for mark, doubtful in zip(marks, maybe.tolist(), strict=True) if doubtful]
        known = self._known(suspects)
        kept = []
        for place, mark in zip(places, marks, strict=True):
            if mark not in known:
                known.add(mark)
                self._overlay.put(mark, b"")
                kept.append(place)
        return kept

    def _known(self, suspects: list[bytes]) -> set[bytes]:
        if not suspects:
            return set()
        self.checked += len(suspects)
        found = self._overlay.get_many(suspects)
        known = {mark for mark, value in zip(suspects, found, strict=True) if value is not None}
        self.confirmed += len(known)
        return known

    def forget_before(self, watermark: int) -> None:
        """Drop the buckets that the watermark has left more than the horizon behind."""
        limit = (watermark - self._horizon_us) // BUCKET_US
        gone = [bucket for bucket in (self._filters.keys() | self._unfiltered) if bucket < limit]
        for bucket in gone:
            self._filters.pop(bucket, None)
            self._unfiltered.discard(bucket)
            self._store.delete_range(SEEN + number8(bucket), SEEN + number8(bucket + 1))


def _first_of_buckets(store: StateStore) -> Iterable[bytes]:
    """One key of every bucket in the store."""
    seen: set[bytes] = set()
    for key, _ in store.scan(SEEN):
        if key[:9] not in seen:
            seen.add(key[:9])
            yield key
