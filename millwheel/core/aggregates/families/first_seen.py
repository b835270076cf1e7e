"""What is seen first: in which of many sets of whole numbers each number, and which of the pairs
that come were not there before."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_Numbers = npt.NDArray[np.uint64]
_SPAN = 1 << 25
"""Up to so many numbers apart, a table of them is quicker than a search."""
_LEAST_BITS = 10
"""Of a table of pairs at first: 4 kB."""
_EMPTY = -1  # Fixed: no index, so a slot without a pair
# Fixed: odd numbers, of which the products spread over all bits
_MIX, _MIX_SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


def first_seen(
    sets: Sequence[Sequence[array[int]]],
) -> tuple[_Numbers, npt.NDArray[np.int64]] | None:
    """All numbers of the sets, sorted, and the index of the first set that has each. None where
    numbers are so large that an index does not fit beside them into 64 bits."""
    arrays = [[np.frombuffer(part, np.uint64) for part in parts] for parts in sets]
    numbers = np.concatenate(
        [np.empty(0, np.uint64), *(part for parts in arrays for part in parts)]
    )
    bits = np.uint64(len(sets).bit_length())
    if len(numbers) and int(numbers.max()) >> (64 - int(bits)):
        return None
    lengths = [sum(map(len, parts)) for parts in arrays]
    indexes = np.repeat(np.arange(len(sets), dtype=np.uint64), lengths)
    # Sorted as one word: several times as fast as a stable sort, or as `unique` with its index.
    both = np.sort(numbers << bits | indexes)
    sorted_numbers = both >> bits
    first = np.ones(len(both), np.bool_)
    first[1:] = sorted_numbers[1:] != sorted_numbers[:-1]
    mask = (np.uint64(1) << bits) - np.uint64(1)
    return sorted_numbers[first], (both[first] & mask).astype(np.int64)


def among(numbers: _Numbers, some: _Numbers) -> npt.NDArray[np.bool_]:
    """Which of the numbers are among ``some`` of them. Both are sorted, each number once."""
    mask = np.zeros(len(numbers), np.bool_)
    if not len(some):
        return mask
    low, high = numbers[0], numbers[-1]
    if int(high) - int(low) > _SPAN:
        mask[np.searchsorted(numbers, some)] = True
        return mask
    table = np.zeros(int(high) - int(low) + 1, np.bool_)
    table[some - low] = True
    mask[:] = table[numbers - low]
    return mask


class SeenPairs:
    """A set of pairs of 64-bit words, exactly. All pairs of a bundle are looked for at once: each
    has a slot of a hash table, with its index among the pairs, and goes on to the next slot as long
    as another pair is there."""

    def __init__(self) -> None:
        self._pairs: tuple[_Numbers, _Numbers] = (_words(0), _words(0))
        self._bits = _LEAST_BITS
        self._table = _table(self._bits)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, first: _Numbers, second: _Numbers) -> npt.NDArray[np.bool_]:
        """Add pairs. True for one record of each pair that was not there."""
        self._make_room(self._count + len(first))
        return self._add(first, second)

    def _add(self, first: _Numbers, second: _Numbers) -> npt.NDArray[np.bool_]:
        fresh = np.zeros(len(first), np.bool_)
        rows = np.arange(len(first))
        slots = self._slots(first, second)
        while len(rows):
            claims = np.flatnonzero(self._table[slots] == _EMPTY)
            if len(claims):
                fresh[rows[self._claim(rows, slots, claims, first, second)]] = True
            held = self._table[slots]
            others = (self._pairs[0][held] != first[rows]) | (self._pairs[1][held] != second[rows])
            rows, slots = rows[others], (slots[others] + 1) & (len(self._table) - 1)
        return fresh

    def _claim(
        self,
        rows: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int64],
        claims: npt.NDArray[np.int64],
        first: _Numbers,
        second: _Numbers,
    ) -> npt.NDArray[np.int64]:
        """Which of the claims get their empty slots: one for each slot."""
        wanted = slots[claims]
        self._table[wanted] = rows[claims]
        won: npt.NDArray[np.int64] = claims[self._table[wanted] == rows[claims]]
        end = self._count + len(won)
        self._pairs[0][self._count : end] = first[rows[won]]
        self._pairs[1][self._count : end] = second[rows[won]]
        self._table[slots[won]] = np.arange(self._count, end)
        self._count = end
        return won

    def _slots(self, first: _Numbers, second: _Numbers) -> npt.NDArray[np.int64]:
        mixed = (first * _MIX) ^ (second * _MIX_SECOND)
        mixed ^= mixed >> np.uint64(32)
        slots: npt.NDArray[np.uint64] = (mixed * _MIX) >> np.uint64(64 - self._bits)
        return slots.astype(np.int64)

    def _make_room(self, count: int) -> None:
        """At least every other slot stays empty."""
        if count > len(self._pairs[0]):
            grown = _words(max(count, 2 * self._count)), _words(max(count, 2 * self._count))
            for old, new in zip(self._pairs, grown, strict=True):
                new[: self._count] = old[: self._count]
            self._pairs = grown
        if 2 * count <= len(self._table):
            return
        self._bits = (2 * count - 1).bit_length()
        self._table = _table(self._bits)
        kept, self._count = self._count, 0
        self._add(*(words[:kept].copy() for words in self._pairs))


def _words(count: int) -> _Numbers:
    return np.zeros(count, np.uint64)


def _table(bits: int) -> npt.NDArray[np.int32]:
    return np.full(1 << bits, _EMPTY, np.int32)
