"""A hash table of the numbers of rows, four bytes a slot. A row is in the first slot of its hash,
or in the next one that was free.

A new table is zeroes, which the system allocates page by page as they are touched. So a slot holds
the number of its row plus one, and a table of any size is made at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.formats.number_runs import Int64s, Words
from millwheel.engine.workers.dictionaries.memory import GrowingArray

# rows that enter a table together: their hashes and slots stay in the processor's cache
AT_ONCE = 1 << 15
FREE = -1  # Fixed: no row has this number
# Fixed: 2**64 divided by the golden ratio, as in Fibonacci hashing
_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)
_HALF = np.uint64(32)  # Fixed: half of 64 bits


class Slots:
    """The number of slots is a power of two."""

    def __init__(self, slots: int) -> None:
        self._shift = np.uint64(65 - slots.bit_length())
        self._slots: npt.NDArray[np.int32] = GrowingArray[np.int32](slots, 1, np.int32).array[:, 0]

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def size_bytes(self) -> int:
        """The memory of all slots."""
        return self._slots.nbytes

    def rows(self, at: Int64s) -> npt.NDArray[np.int32]:
        """The row in each of these slots, FREE where there is none."""
        return self._slots[at] - 1

    def put(self, at: Int64s, rows: npt.NDArray[np.integer[Any]]) -> None:
        """Put rows into slots. Of several for one slot, one is in it afterwards."""
        self._slots[at] = rows + 1

    def after(self, at: Int64s) -> Int64s:
        """The next slots."""
        return (at + 1) & (len(self._slots) - 1)

    def first(self, low: Words, high: Words) -> Int64s:
        """The first slot of values: the upper bits of their hash, so that a table of another size
        has them in the same order."""
        slots: Int64s = (((low ^ (low >> _HALF) ^ high) * _ODD) >> self._shift).astype(np.int64)
        return slots

    def between(self, start: int, end: int) -> npt.NDArray[np.int32]:
        """The rows in these slots."""
        rows = self._slots[start:end]
        return rows[rows > 0] - 1

    def enter(self, rows: npt.NDArray[np.int32], low: Words, high: Words) -> None:
        """Put rows of values that are not there into the table."""
        at = self.first(low, high)
        while len(rows):
            free = self.rows(at) == FREE
            self.put(at[free], rows[free])
            on = self.rows(at) != rows
            rows, at = rows[on], self.after(at[on])

    def fill(self, low: Words, high: Words) -> None:
        """Put all rows into the empty table. They are sorted by slot before, so that it is written
        from its beginning to its end: three times as fast as to enter them."""
        count = len(low)
        keys = np.empty(count, np.uint64)
        for start in range(0, count, AT_ONCE):
            part = slice(start, min(start + AT_ONCE, count))
            keys[part] = self.first(low[part], high[part])
            keys[part] <<= _HALF
            keys[part] |= np.arange(part.start, part.stop, dtype=np.uint64)
        keys.sort()
        next_slot = 0
        for start in range(0, count, AT_ONCE):
            some = keys[start : start + AT_ONCE]
            index = np.arange(len(some))
            offsets = (some >> _HALF).astype(np.int64) - index
            at = np.maximum.accumulate(np.maximum(offsets, next_slot)) + index
            next_slot = int(at[-1]) + 1
            rows = some.astype(np.uint32).view(np.int32)
            within = at < len(self._slots)
            self.put(at[within], rows[within])
            if not within.all():  # the last of them go on from the beginning
                overflow = rows[~within]
                self.enter(overflow, low[overflow], high[overflow])
