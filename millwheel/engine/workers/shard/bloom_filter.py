"""The Bloom filter of a bucket of ids: sized by pybloom-live, probed and filled with a whole batch
at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pybloom_live import BloomFilter

_CAPACITY = 100_000  # ids of the first filter; each next one takes twice as many
_ERROR_RATE = 0.001  # of ids that are looked up in the store for nothing
_DENSE = 32
"""Filters of at most this many bits for each set one are packed anew: one pass over all bits, not
one for each."""
_HALF = np.uint64(32)  # Fixed: of the bits of a word
Words = npt.NDArray[np.uint64]
"""One half of the digest of each id."""
Int64s = npt.NDArray[np.int64]


class BitsOf:
    """The bits of some ids in filters. Those of the first slice are computed once for all filters
    of a size."""

    def __init__(self, low: Words, high: Words) -> None:
        self.count = len(low)
        self._low = low
        self._high = high | np.uint64(1)
        self._first: dict[int, tuple[Int64s, npt.NDArray[np.uint8]]] = {}

    def first(self, bloom: BloomFilter) -> tuple[Int64s, npt.NDArray[np.uint8]]:
        """The bytes of the first slice of a filter, and the bit in each."""
        width = bloom.bits_per_slice
        if width not in self._first:
            self._first[width] = _in_bytes(_bit(self._low, width))
        return self._first[width]

    def of(
        self, bloom: BloomFilter, index: int, rows: Int64s
    ) -> tuple[Int64s, npt.NDArray[np.uint8]]:
        """The same for slice ``index`` and some of the ids."""
        width = bloom.bits_per_slice
        bits = _bit(self._low[rows] + np.uint64(index) * self._high[rows], width)
        return _in_bytes(bits + index * width)

    def all(self, bloom: BloomFilter) -> Int64s:
        """All bits of a filter that stand for the ids."""
        width, words = bloom.bits_per_slice, self._low
        bits = np.empty((bloom.num_slices, len(words)), np.int64)
        for index in range(bloom.num_slices):  # one slice fits into the processor's cache
            np.add(_bit(words, width), index * width, out=bits[index])
            words = words + self._high
        return bits.ravel()


class BucketFilter:
    """The filters of one bucket: pybloom-live filters, each probed and filled with whole
    batches."""

    def __init__(self, first: int = _CAPACITY) -> None:
        """``first``: how many ids the first filter takes."""
        self._first = first
        self._filters: list[tuple[BloomFilter, npt.NDArray[np.uint8], int]] = []
        self._room = 0

    @property
    def size_bytes(self) -> int:
        """The memory of the filters."""
        return sum(view.nbytes for _, view, _ in self._filters)

    def maybe(self, bits_of: BitsOf) -> Int64s:
        """The indexes of the ids that may have been added before."""
        indexes = [self._left(bloom, view, bits_of) for bloom, view, _ in self._filters]
        if len(indexes) == 1:
            return indexes[0]
        return np.unique(np.concatenate(indexes)) if indexes else np.array([], np.int64)

    def add(self, low: Words, high: Words) -> None:
        """Remember ids; a new filter of twice the size follows when the last one is full."""
        if self._room < len(low):
            capacity = max(self._first << len(self._filters), 2 * len(low))
            bloom = BloomFilter(capacity, _ERROR_RATE)
            bloom.bitarray = type(bloom.bitarray)(len(bloom.bitarray), "little")
            bloom.bitarray.setall(False)
            view = np.frombuffer(bloom.bitarray, dtype=np.uint8)
            self._filters.append((bloom, view, capacity))
            self._room = capacity
        bloom, view, _ = self._filters[-1]
        _set(view, BitsOf(low, high).all(bloom))
        self._room -= len(low)

    @staticmethod
    def _left(bloom: BloomFilter, view: npt.NDArray[np.uint8], bits_of: BitsOf) -> Int64s:
        """The ids of which all bits are set. Few are left after the first slices."""
        at, masks = bits_of.first(bloom)
        indexes = np.flatnonzero(view[at] & masks)
        for index in range(1, bloom.num_slices):
            if not len(indexes):
                break
            at, masks = bits_of.of(bloom, index, indexes)
            indexes = indexes[(view[at] & masks) != 0]
        return indexes


def _bit(words: Words, width: int) -> Int64s:
    """A bit below ``width`` for each word, evenly. (A remainder takes four times as long.)"""
    bit: Int64s = (((words >> _HALF) * np.uint64(width)) >> _HALF).view(np.int64)
    return bit


def _in_bytes(bits: Int64s) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    return bits >> 3, np.left_shift(np.uint8(1), (bits & 7).astype(np.uint8))


def _set(view: npt.NDArray[np.uint8], bits: Int64s) -> None:
    if 8 * len(view) > _DENSE * len(bits):
        at, masks = _in_bytes(bits)
        np.bitwise_or.at(view, at, masks)
        return
    flags = np.zeros(8 * len(view), np.bool_)
    flags[bits] = True
    view |= np.packbits(flags, bitorder="little")
