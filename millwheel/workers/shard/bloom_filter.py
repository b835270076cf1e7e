"""The Bloom filter of a bucket of ids: sized by pybloom-live, probed and filled with a whole batch at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pybloom_live import BloomFilter

_CAPACITY = 100_000  # ids of the first filter; each next one takes twice as many
_ERROR_RATE = 0.001  # of ids that are looked up in the store for nothing
Words = npt.NDArray[np.uint64]
"""One half of the digest of each id."""


class BucketFilter:
    """The filters of one bucket: pybloom-live filters, each probed and filled with whole batches."""

    def __init__(self) -> None:
        self._filters: list[tuple[BloomFilter, npt.NDArray[np.uint8], int]] = []
        self._room = 0

    @property
    def size_bytes(self) -> int:
        """The memory of the filters."""
        return sum(view.nbytes for _, view, _ in self._filters)

    def maybe(self, low: Words, high: Words) -> npt.NDArray[np.bool_]:
        """True where an id may have been added before."""
        found = np.zeros(len(low), dtype=np.bool_)
        for bloom, view, _ in self._filters:
            bits = self._bits(bloom, low, high)
            found |= ((view[bits >> 3] >> (bits & 7).astype(np.uint8)) & 1).all(axis=0)
        return found

    def add(self, low: Words, high: Words) -> None:
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
        bits = self._bits(bloom, low, high).ravel()
        np.bitwise_or.at(view, bits >> 3, np.left_shift(np.uint8(1), (bits & 7).astype(np.uint8)))
        self._room -= len(low)

    @staticmethod
    def _bits(bloom: BloomFilter, low: Words, high: Words) -> npt.NDArray[np.int64]:
        slices = np.arange(bloom.num_slices, dtype=np.uint64)[:, None]
        width = np.uint64(bloom.bits_per_slice)
        bits: npt.NDArray[np.uint64] = (low + slices * (high | np.uint64(1))) % width + slices * width
        return bits.astype(np.int64)
