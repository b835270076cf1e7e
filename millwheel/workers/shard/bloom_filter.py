"""The Bloom filter of a bucket of ids: blocked, so that an id is one look at one word.

Each id stands for a word of a table, by the upper half of its digest, and for some bits of that word, by the lower
half. A filter whose bits lie all over its table (pybloom-live) needs fewer bits for as few false positives, and takes
nine times as long to ask and five times as long to fill, with arrays as well.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_CAPACITY = 1 << 16
"""Ids of the first filter of a bucket (128 KiB); each next one takes twice as many."""
_IDS_PER_WORD = 4
"""Of a full filter: four of a thousand new ids are looked up for nothing then; one, while it is half full."""
_BITS = 5  # of an id in its word
_BIT_WIDTH, _BIT_MASK = np.uint64(6), np.uint64(63)  # Fixed: a word has 64 bits
_ONE = np.uint64(1)
Words = npt.NDArray[np.uint64]
"""One half of the digest of each id."""
Int64s = npt.NDArray[np.int64]


class BitsOf:
    """The bits of some ids in filters of all sizes."""

    def __init__(self, low: Words, high: Words) -> None:
        self.count = len(low)
        self._high = high
        self.masks = np.zeros(len(low), np.uint64)
        for _ in range(_BITS):
            self.masks |= _ONE << (low & _BIT_MASK)
            low = low >> _BIT_WIDTH
        self._at: dict[int, Int64s] = {}

    def at(self, size: int) -> Int64s:
        """The word of each id in a table of ``size`` words, a power of two."""
        if size not in self._at:
            self._at[size] = (self._high & np.uint64(size - 1)).view(np.int64)
        return self._at[size]


class BucketFilter:
    """The filters of one bucket, each probed and filled with whole batches."""

    def __init__(self) -> None:
        self._tables: list[Words] = []
        self._room = 0

    @property
    def size_bytes(self) -> int:
        """The memory of the filters."""
        return sum(table.nbytes for table in self._tables)

    def maybe(self, bits_of: BitsOf) -> Int64s:
        """The indexes of the ids that may have been added before."""
        found = np.zeros(bits_of.count, np.bool_)
        for table in self._tables:
            found |= (table[bits_of.at(len(table))] & bits_of.masks) == bits_of.masks
        return np.flatnonzero(found)

    def add(self, low: Words, high: Words) -> None:
        """Remember ids; a new filter of twice the size follows when the last one is full."""
        if self._room < len(low):
            capacity = _CAPACITY << len(self._tables)
            while capacity < 2 * len(low):
                capacity *= 2
            self._tables.append(np.zeros(capacity // _IDS_PER_WORD, np.uint64))
            self._room = capacity
        table, bits_of = self._tables[-1], BitsOf(low, high)
        np.bitwise_or.at(table, bits_of.at(len(table)), bits_of.masks)
        self._room -= len(low)
