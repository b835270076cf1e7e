"""Sets of whole numbers as sorted arrays: the first of many sets that has each number, and the
numbers that are in another set."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_Numbers = npt.NDArray[np.uint64]
_SPAN = 1 << 25
"""The widest range of numbers for which a table is quicker than a search."""


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
    """Which of the numbers are in ``some``. Both are sorted, each number once."""
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
