"""The values of a dictionary, in memory: rows in the order in which they came, and a hash table of
them in an array, both probed and filled with a whole bundle at once.

Neither blocks to grow. Rows grow in place. A larger hash table is filled beside the old one, from
some of its slots for each bundle, and replaces it once it has all rows; until then the old one is
used. Nor does it block to forget: a forgotten value is one that was never seen, and stays in its
row. Once there are many, another hash table is filled with all others in the same way, and new
values get the rows that are not in it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millwheel.core.formats.number_runs import ROW, Int64s, NumberRows, Words
from millwheel.core.model.times import MIN_TIME
from millwheel.engine.workers.dictionaries.memory import GrowingArray
from millwheel.engine.workers.dictionaries.slots import AT_ONCE, FREE, Slots

_FIRST = 1 << 10  # slots of the first table, and rows
_GROWS_AT = 0.45
"""Of the slots. Beyond it a table that is twice as large is filled beside this one."""
_MOST_FULL = 0.6
"""Of the slots: beyond it the rest of the larger table is filled at once, as after a bundle of very
many new values."""
_FORGOTTEN = 0.25
"""Of the rows. When the values of more have been forgotten, they leave the hash table."""
NEVER = MIN_TIME
"""When new and forgotten values were seen last."""
_AHEAD = 16  # slots whose rows enter the larger table for each value that is asked for
_WORDS = 3  # Fixed: of a row
_HEAD, _LOW, _HIGH = range(_WORDS)


class NumberTable:
    """The rows of all values, by their hashes. ``timed``: and when each was seen last (µs)."""

    def __init__(self, timed: bool = False) -> None:
        self._count = 0
        self._words = GrowingArray[np.uint64](_FIRST, _WORDS, np.uint64)
        self._seen = GrowingArray[np.int64](_FIRST, 1, np.int64) if timed else None
        self._slots = Slots(_FIRST)
        self._larger: Slots | None = None
        self._moved = 0
        """The slots whose rows are in the larger one."""
        self._forgotten = 0
        self._dropped: list[npt.NDArray[np.int32]] = []
        """Rows of forgotten values that the larger table was not given."""
        self._free: Int64s = np.empty(0, np.int64)
        """Rows that no slot has."""

    def __len__(self) -> int:
        return self._count if self._seen is None else int(np.count_nonzero(self.seen != NEVER))

    @property
    def size_bytes(self) -> int:
        """The memory of the arrays, if all of it has been touched."""
        arrays = (self._words, self._seen, self._slots, self._larger)
        return sum(each.size_bytes for each in arrays if each is not None)

    @property
    def grows(self) -> bool:
        """Whether a larger hash table is being filled."""
        return self._larger is not None

    @property
    def heads(self) -> Words:
        """The head of each row, to be read and set."""
        heads: Words = self._words.array[: self._count, _HEAD]
        return heads

    @property
    def seen(self) -> Int64s:
        """When the value of each row was seen last, to be read and set."""
        assert self._seen is not None
        seen: Int64s = self._seen.array[: self._count, 0]
        return seen

    def rows(self, at: Int64s | slice) -> NumberRows:
        """Copies of some rows, as they are stored."""
        rows: NumberRows = np.ascontiguousarray(self._words.array[: self._count][at]).view(ROW)[
            :, 0
        ]
        return rows

    def reserve(self, rows: int) -> None:
        """Make room for this many further rows."""
        self._make_room(rows)

    def append(self, rows: NumberRows) -> None:
        """Add rows of values that are not there. They can be asked for after :meth:`ready`."""
        self._make_room(len(rows))
        end = self._count + len(rows)
        self._words.array[self._count : end] = rows.view(np.uint64).reshape(-1, _WORDS)
        self._count = end

    def ready(self) -> None:
        """Make all rows findable."""
        self._slots, self._larger = Slots(self._slots_for(self._count)), None
        self._slots.fill(
            self._words.array[: self._count, _LOW], self._words.array[: self._count, _HIGH]
        )

    def _slots_for(self, rows: int) -> int:
        slots = len(self._slots)
        while rows > slots * _GROWS_AT:
            slots *= 2
        return slots

    def find(self, low: Words, high: Words) -> Int64s:
        """The row of each value, -1 where there is none."""
        result = np.full(len(low), FREE, np.int64)
        slots, words = self._slots, self._words.array
        at, pending = slots.first(low, high), np.arange(len(low))
        while len(pending):
            rows = slots.rows(at)
            entries = np.take(words, rows, axis=0)
            same = (entries[:, _LOW] == low) & (entries[:, _HIGH] == high) & (rows != FREE)
            result[pending[same]] = rows[same]
            on = ~same & (rows != FREE)
            pending, low, high, at = pending[on], low[on], high[on], slots.after(at[on])
        return result

    def take(self, low: Words, high: Words) -> tuple[Int64s, Int64s]:
        """The row of each value, and which of them are new: the indexes of one of each in ``low``,
        in order. The rows of new ones are the last, unless values are forgotten; their other
        columns are to be set."""
        count, many = self._count, len(low)
        self._make_room(many)
        self._grow(many)
        slots, words = self._slots, self._words.array
        # All of them are put behind the rows for now, so that those that come twice find each other
        # there.
        words[count : count + many, _LOW], words[count : count + many, _HIGH] = low, high
        result, pending, fresh = np.empty(many, np.int64), np.arange(many), [np.empty(0, np.int64)]
        at, slot_of = slots.first(low, high), np.empty(many, np.int64)
        while len(pending):
            rows = slots.rows(at)
            free = rows == FREE
            if free.any():
                # Of several that claim one slot, only one gets it.
                claims, claimed = pending[free], at[free]
                slots.put(claimed, claims + count)
                got = slots.rows(claimed)
                rows[free], won = got, got == claims + count
                slot_of[claims[won]] = claimed[won]
                fresh.append(claims[won])
            entries = np.take(words, rows, axis=0)
            same = (entries[:, _LOW] == low) & (entries[:, _HIGH] == high)
            result[pending[same]] = rows[same]
            on = ~same
            pending, low, high, at = pending[on], low[on], high[on], slots.after(at[on])
        return self._closed_up(result, np.sort(np.concatenate(fresh)), slot_of)

    def _closed_up(self, rows: Int64s, fresh: Int64s, slot_of: Int64s) -> tuple[Int64s, Int64s]:
        """Keep of the rows behind the others those of new values."""
        count = self._count
        again, self._free = self._free[: len(fresh)], self._free[len(fresh) :]
        final = np.concatenate([again, np.arange(count, count + len(fresh) - len(again))])
        self._words.array[final] = self._words.array[count + fresh]
        self._slots.put(slot_of[fresh], final)
        if self._larger is not None:
            moved = np.flatnonzero(slot_of[fresh] < self._moved)
            words = self._words.array[final[moved]]
            self._larger.enter(final[moved].astype(np.int32), words[:, _LOW], words[:, _HIGH])
        behind = rows >= count
        position = np.empty(len(rows), np.int64)
        position[fresh] = final
        rows[behind] = position[rows[behind] - count]
        self._count += len(fresh) - len(again)
        return rows, fresh

    def _make_room(self, more: int) -> None:
        size, needed = len(self._words.array), self._count + more
        if needed <= size:
            return
        for array in (self._words, self._seen):
            if array is not None:
                array.grow(max(2 * size, needed))

    def _grow(self, more: int) -> None:
        """Let the rows in some more slots enter the larger table, if one is needed, and use it once
        it has all. Slot by slot, not row by row: so only a small part of the new memory is touched
        each time."""
        count, slots = self._count, len(self._slots)
        if self._larger is None:
            if count + more <= slots * _GROWS_AT and self._forgotten <= count * _FORGOTTEN:
                return
            self._larger, self._moved, self._forgotten = Slots(self._slots_for(count + more)), 0, 0
        full = count + more > slots * _MOST_FULL
        end = slots if full else min(slots, self._moved + max(AT_ONCE, _AHEAD * more))
        for start in range(self._moved, end, AT_ONCE):
            rows = self._slots.between(start, min(start + AT_ONCE, end))
            if self._seen is not None:
                gone = self.seen[rows] == NEVER
                self._dropped.append(rows[gone])
                rows = rows[~gone]
            self._enter(self._larger, rows)
        self._moved = end
        if end == slots:
            self._free_dropped(self._larger)
            self._slots, self._larger = self._larger, None

    def _free_dropped(self, larger: Slots) -> None:
        """New values may have the rows of forgotten ones, unless these were seen again in the
        meantime."""
        if self._dropped:
            rows = np.concatenate(self._dropped)
            self._dropped.clear()
            gone = self.seen[rows] == NEVER
            self._enter(larger, rows[~gone])
            self._free = np.concatenate([self._free, rows[gone]])

    def _enter(self, slots: Slots, rows: npt.NDArray[np.int32]) -> None:
        entries = np.take(self._words.array, rows, axis=0)
        slots.enter(rows, entries[:, _LOW], entries[:, _HIGH])

    def forget_before(self, limit: int) -> Words:
        """Forget the values that were seen last before ``limit``, so that they were never seen.
        Returns their heads."""
        seen = self.seen
        old = np.flatnonzero((seen < limit) & (seen != NEVER))
        seen[old] = NEVER
        self._forgotten += len(old)
        gone: Words = self.heads[old]
        return gone
