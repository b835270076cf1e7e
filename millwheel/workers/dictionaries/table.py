"""What is known of the values of a dictionary, in memory: rows in the order in which they came, and a hash table of
them in an array, both asked and filled with a whole bundle at once.

Memory that is touched for the first time is the dearest part of it. So only the table, four bytes a slot, is made anew
as it grows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millwheel.core.formats.number_runs import ROW, Int64s, NumberRows, Words

_FIRST = 1 << 10  # slots of the first table
_MOST_FULL = 0.5
"""Of the slots. Beyond it the table becomes twice as large."""
_AT_ONCE = 1 << 15  # rows that enter the table together: what is computed of them stays in the processor's cache
_FREE = -1  # Fixed: no row has this number
_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)  # Fixed: 2**64 divided by the golden ratio, as in Fibonacci hashing
_HALF = np.uint64(32)  # Fixed: half of 64 bits
_WORDS = 3  # Fixed: of a row
_HEAD, _LOW, _HIGH = range(_WORDS)


class NumberTable:
    """The rows of all values, by what the values are known by. ``timed``: and when each was seen last (µs)."""

    def __init__(self, timed: bool = False) -> None:
        self._count = 0
        self._words: Words = np.empty((_FIRST, _WORDS), np.uint64)
        self._seen = np.empty(_FIRST if timed else 0, np.int64)
        self._timed = timed
        self._table = np.full(_FIRST, _FREE, np.int32)

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """The memory of the arrays."""
        return self._words.nbytes + self._seen.nbytes + self._table.nbytes

    @property
    def heads(self) -> Words:
        """The head of each row, to be read and set."""
        heads: Words = self._words[: self._count, _HEAD]
        return heads

    @property
    def seen(self) -> Int64s:
        """When the value of each row was seen last, to be read and set."""
        return self._seen[: self._count]

    def rows(self, at: Int64s | slice) -> NumberRows:
        """Copies of some rows, as they are stored."""
        rows: NumberRows = np.ascontiguousarray(self._words[: self._count][at]).view(ROW)[:, 0]
        return rows

    def reserve(self, rows: int) -> None:
        """So many rows are to come."""
        self._make_room(rows)

    def append(self, rows: NumberRows) -> None:
        """Add rows of values that are not there. They can be asked for after :meth:`ready`."""
        self._make_room(len(rows))
        end = self._count + len(rows)
        self._words[self._count : end] = rows.view(np.uint64).reshape(-1, _WORDS)
        self._count = end

    def ready(self, more: int = 0) -> None:
        """All rows can be found from here on, and there is room for ``more``."""
        slots = len(self._table)
        while self._count + more > slots * _MOST_FULL:
            slots *= 2
        self._table = np.full(slots, _FREE, np.int32)
        for start in range(0, self._count, _AT_ONCE):
            self._enter(np.arange(start, min(start + _AT_ONCE, self._count), dtype=np.int32))

    def _enter(self, rows: npt.NDArray[np.int32]) -> None:
        """Put rows of values that are not there into the table."""
        words = self._words[rows[0] : rows[-1] + 1]
        at, step, mask = self._first_slots(words[:, _LOW], words[:, _HIGH]), 0, len(self._table) - 1
        while len(rows):
            free = self._table[at] == _FREE
            self._table[at[free]] = rows[free]
            on = self._table[at] != rows
            step += 1
            rows, at = rows[on], (at[on] + step) & mask

    def find(self, low: Words, high: Words) -> Int64s:
        """The row of each value, -1 where there is none."""
        found = np.full(len(low), _FREE, np.int64)
        at, asked = self._first_slots(low, high), np.arange(len(low))
        step, mask = 0, len(self._table) - 1
        while len(asked):
            rows = self._table[at]
            words = np.take(self._words, rows, axis=0)
            same = (words[:, _LOW] == low) & (words[:, _HIGH] == high) & (rows != _FREE)
            found[asked[same]] = rows[same]
            on = ~same & (rows != _FREE)
            step += 1
            asked, low, high, at = asked[on], low[on], high[on], (at[on] + step) & mask
        return found

    def take(self, low: Words, high: Words) -> tuple[Int64s, Int64s]:
        """The row of each value, and which of them are new: the indexes of one of each in ``low``, in order. The rows
        of new ones are the last; what else is known of them is to be set."""
        count, many = self._count, len(low)
        self._make_room(many)
        if (count + many) > len(self._table) * _MOST_FULL:
            self.ready(many)
        # All of them are put behind the rows for now, so that those that come twice find each other there.
        self._words[count : count + many, _LOW], self._words[count : count + many, _HIGH] = low, high
        found, asked, fresh = np.empty(many, np.int64), np.arange(many), [np.empty(0, np.int64)]
        at, slot_of = self._first_slots(low, high), np.empty(many, np.int64)
        step, mask = 0, len(self._table) - 1
        while len(asked):
            rows = self._table[at]
            free = rows == _FREE
            if free.any():
                # Of several that want one slot, only one gets it.
                wanted, slots = asked[free], at[free]
                self._table[slots] = wanted + count
                got = self._table[slots]
                rows[free], won = got, got == wanted + count
                slot_of[wanted[won]] = slots[won]
                fresh.append(wanted[won])
            words = np.take(self._words, rows, axis=0)
            same = (words[:, _LOW] == low) & (words[:, _HIGH] == high)
            found[asked[same]] = rows[same]
            on = ~same
            step += 1
            asked, low, high, at = asked[on], low[on], high[on], (at[on] + step) & mask
        return self._closed_up(found, np.sort(np.concatenate(fresh)), slot_of)

    def _closed_up(self, found: Int64s, fresh: Int64s, slot_of: Int64s) -> tuple[Int64s, Int64s]:
        """Keep of the rows behind the others those of new values."""
        count = self._count
        self._words[count : count + len(fresh)] = self._words[count + fresh]
        final = np.arange(count, count + len(fresh))
        self._table[slot_of[fresh]] = final
        behind = found >= count
        position = np.empty(len(found), np.int64)
        position[fresh] = final
        found[behind] = position[found[behind] - count]
        self._count += len(fresh)
        return found, fresh

    def _first_slots(self, low: Words, high: Words) -> Int64s:
        mixed = (low ^ (low >> _HALF) ^ high) * _ODD
        slots: Int64s = ((mixed ^ (mixed >> _HALF)) & np.uint64(len(self._table) - 1)).astype(np.int64)
        return slots

    def _make_room(self, more: int) -> None:
        size = len(self._words)
        if self._count + more <= size:
            return
        size = max(2 * size, self._count + more)
        words, seen = np.empty((size, _WORDS), np.uint64), np.empty(size if self._timed else 0, np.int64)
        words[: self._count] = self._words[: self._count]
        if self._timed:
            seen[: self._count] = self.seen
        self._words, self._seen = words, seen

    def forget_before(self, limit: int) -> Words:
        """Forget the values that were seen last before ``limit``. Returns their heads."""
        old = self.seen < limit
        gone: Words = self.heads[old].copy()
        if len(gone):
            kept, seen = self._words[: self._count][~old], self.seen[~old]
            self._count = len(kept)
            self._words[: len(kept)], self._seen[: len(kept)] = kept, seen
            self.ready()
        return gone
