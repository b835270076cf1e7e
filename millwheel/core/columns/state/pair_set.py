"""A set of pairs of numbers, to which all pairs of a bundle are added at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Numbers = npt.NDArray[np.uint64]
_LEAST_BITS = 10
"""The size of a table of pairs at first: 4 kB."""
_EMPTY = -1  # Fixed: no index, so a slot without a pair
# Fixed: odd numbers, of which the products spread over all bits
_MIX, _MIX_SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class PairSet:
    """An exact set of pairs of 64-bit words. All pairs of a bundle are looked for at once: each has
    a slot of a hash table, with its index among the pairs, and moves on to the next slot as long as
    another pair is there."""

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
        """The claims that get their empty slots: one for each slot."""
        empty = slots[claims]
        self._table[empty] = rows[claims]
        won: npt.NDArray[np.int64] = claims[self._table[empty] == rows[claims]]
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
