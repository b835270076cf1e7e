"""The numbers of values: in memory as a table, in the store as runs, each of which a bundle added.

With a time to live, time is cut into buckets of an eighth of it. A value is kept up to eight
buckets behind the one in which it was seen last, so the number that a record gets depends on times
alone. A value that is seen in a new bucket is written once more, into a run of that bucket; buckets
are forgotten as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.adapters.ports import StateStore
from millwheel.core.formats.number_runs import (
    ROW,
    Int64s,
    Words,
    heads_of,
    numbers_of_heads,
    partitions_of_heads,
    run_key,
)
from millwheel.core.lazy_polars import pl
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.dictionaries import TTL_PARTS, ids_of
from millwheel.engine.workers.dictionaries.singles import Singles
from millwheel.engine.workers.dictionaries.store_form import StoredNumbers, read_numbers
from millwheel.engine.workers.dictionaries.table import NEVER
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.runs import Runs
from millwheel.errors import invariant


class Counters:
    """The next numbers of all partitions. ``counted``: how far each has counted, according to the
    runs."""

    def __init__(self, counted: Int64s, stored: Singles) -> None:
        self.partitions = len(counted)
        self._stored = stored
        self._next = counted
        self._read = np.zeros(len(counted), np.bool_)
        self._to_store: set[int] = set()

    def next(self, partitions: Int64s) -> Int64s:
        """The next numbers of partitions, for new values in order."""
        self._read_stored(partitions)
        order = np.argsort(partitions, kind="stable")
        ordered = partitions[order]
        first = (
            np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
            if len(ordered)
            else ordered
        )
        lengths = np.diff(np.append(first, len(ordered)))
        numbers = np.empty(len(partitions), np.int64)
        numbers[order] = self._next[ordered] + np.arange(len(ordered)) - np.repeat(first, lengths)
        self._next[ordered[first]] += lengths
        return numbers

    def store(self, partitions: Int64s) -> None:
        """Store these with the next :meth:`write`: no run will show how far they have counted."""
        self._read_stored(partitions)
        self._to_store.update(np.unique(partitions).tolist())

    def write(self) -> None:
        """Put the counters to be stored into the commit of this bundle."""
        for partition in sorted(self._to_store):
            self._stored.put_counted(partition, int(self._next[partition]))
        self._to_store.clear()

    def _read_stored(self, partitions: Int64s) -> None:
        missing = np.unique(partitions[~self._read[partitions]])
        if len(missing):
            stored = np.array(self._stored.counted(missing.tolist()), np.int64)
            # The higher of the stored counter and that of the runs: otherwise the number of a value
            # is given to another one.
            self._next[missing] = np.maximum(self._next[missing], stored)
            self._read[missing] = True


_HELD = 4_000_000
"""Values of a shard that are in memory, some 40 bytes each; further ones are entries of their own.
With a time to live all are in memory."""
_FAR = 2**61  # Fixed: µs; times are cut there, so that differences of two are numbers of 64 bits
_EVER = MIN_TIME
"""The bucket of values without a time to live."""


class Numbers:
    """The numbers of the values of one shard. ``stored``: the contents of ``store``, if they were
    read when it was opened."""

    def __init__(
        self,
        store: StateStore,
        overlay: Overlay,
        partitions: int,
        shard: str = "",
        ttl_us: int | None = None,
        held: int = _HELD,
        stored: StoredNumbers | None = None,
    ) -> None:
        self._overlay = overlay
        self._shard = shard
        self._held = held
        self._step_us = None if ttl_us is None else max(ttl_us // TTL_PARTS, 1)
        stored = stored or read_numbers(store, partitions, timed=ttl_us is not None)
        self._table = stored.table
        self._singles = Singles(store, overlay)
        self._counters = Counters(stored.counted, self._singles)
        self._buckets: dict[int, Runs] = {}
        self._changed: list[Int64s] = []
        for run in stored.runs:
            self._bucket(run.start).restore(run.store_key, run.number, run.size_bytes)
        self._written = len(self._table)

    def of(
        self,
        words: tuple[Words, Words],
        partitions: Int64s,
        times: Int64s,
        values: Callable[[], Sequence[Any]],
    ) -> Int64s:
        """The id of each value; those that come for the first time get the next numbers of their
        partitions. ``times``: those of the records, or of the watermark where that is behind them.
        ``values`` are only needed where some are entries by themselves."""
        low, high = words
        if self._step_us is not None:
            heads = self._timed(low, high, partitions, _cut(times, self._step_us), self._step_us)
        elif len(self._table) + len(low) <= self._held:
            rows, fresh = self._table.take(low, high)
            if len(fresh):
                self._table.heads[rows[fresh]] = self._give(partitions[fresh], values, fresh)
            heads = self._table.heads[rows]
        else:
            heads = self._beyond(low, high, partitions, values())
        return ids_of(
            partitions_of_heads(heads), numbers_of_heads(heads), self._counters.partitions
        )

    # --- without a time to live -------------------------------------------------------------------

    def _give(
        self, partitions: Int64s, values: Callable[[], Sequence[Any]], fresh: Int64s
    ) -> Words:
        """The heads of values that come into the table. Those that were entries by themselves keep
        their numbers."""
        if not self._singles.there:
            return heads_of(partitions, self._counters.next(partitions))
        items = values()
        named = {
            items[row]: at for row, at in zip(fresh.tolist(), partitions.tolist(), strict=True)
        }
        stored = self._singles.of(named)
        numbers = np.array([stored.get(value, -1) for value in named], np.int64)
        new = numbers < 0
        numbers[new] = self._counters.next(partitions[new])
        for value in stored:
            self._singles.delete(named[value], value)
        return heads_of(partitions, numbers)

    def _beyond(self, low: Words, high: Words, partitions: Int64s, values: Sequence[Any]) -> Words:
        """The heads of values when the table is full: those that are not in it are entries by
        themselves."""
        rows = self._table.find(low, high)
        heads = np.empty(len(rows), np.uint64)
        heads[rows >= 0] = self._table.heads[rows[rows >= 0]]
        missing = np.flatnonzero(rows < 0)
        named = {
            values[row]: at
            for row, at in zip(missing.tolist(), partitions[missing].tolist(), strict=True)
        }
        numbers = self._singles.of(named)
        new = [value for value in named if value not in numbers]
        at = np.array([named[value] for value in new], np.int64)
        for value, partition, number in zip(
            new, at.tolist(), self._counters.next(at).tolist(), strict=True
        ):
            self._singles.put(partition, value, number)
            numbers[value] = number
        self._counters.store(at)
        assigned = np.array([numbers[values[row]] for row in missing.tolist()], np.int64)
        heads[missing] = heads_of(partitions[missing], assigned)
        return heads

    # --- with a time to live ----------------------------------------------------------------------

    def _timed(
        self, low: Words, high: Words, partitions: Int64s, at: Int64s, step_us: int
    ) -> Words:
        """The heads of values that were seen in the buckets ``at``."""
        table = self._table
        rows, fresh = table.take(low, high)
        table.seen[rows[fresh]] = NEVER
        seen, heads = table.seen[rows], table.heads[rows]
        if bool(_are_over(seen, at, step_us).any()):
            heads = self._born_again(
                rows, heads, partitions, np.maximum(seen, _earlier(rows, at)), at, step_us
            )
        np.maximum.at(table.seen, rows, at)
        changed = table.seen[rows] != seen
        self._changed.append(rows[changed])
        return heads

    def _born_again(
        self, rows: Int64s, heads: Words, partitions: Int64s, seen: Int64s, at: Int64s, step_us: int
    ) -> Words:
        """The heads where some values are new or were forgotten; ``seen``: when each had been seen
        last."""
        born = _are_over(seen, at, step_us)
        assigned = np.empty(len(rows), np.uint64)
        assigned[born] = heads_of(partitions[born], self._counters.next(partitions[born]))
        births = _highest_so_far(rows, np.where(born, np.arange(len(rows)), -1))
        heads = np.where(births >= 0, assigned[births], heads)
        last = pl.Series(rows).is_last_distinct().to_numpy()
        self._table.heads[rows[last]] = heads[last]
        return heads

    def forget(self, watermark: int) -> None:
        """Forget the values that no record from the watermark on can find. The changes go into the
        commit of this bundle."""
        if self._step_us is None or not self._buckets:
            return
        limit = int(_cut(np.array([watermark]), self._step_us)[0]) - TTL_PARTS * self._step_us
        if min(self._buckets) >= limit:
            return
        self._counters.store(partitions_of_heads(self._table.forget_before(limit)))
        for start in [start for start in self._buckets if start < limit]:
            self._buckets.pop(start).delete()

    def due_at(self) -> int:
        """The watermark beyond which something is forgotten (µs). A bucket from which on times are
        cut is kept: the shard would run for ever to forget it."""
        if self._step_us is None or not self._buckets:
            return MAX_TIME
        due = (
            -(-(min(self._buckets) + TTL_PARTS * self._step_us + 1) // self._step_us)
            * self._step_us
            - 1
        )
        return due if due < _FAR else MAX_TIME

    # --- what is stored ---------------------------------------------------------------------------

    def write(self) -> None:
        """Write the changes since the last call."""
        table = self._table
        if self._step_us is None:
            # Values that are gone from the table would get other numbers when they come again.
            invariant(
                self._written <= len(table),
                f"{self._written} values are stored, and {len(table)} are in the table",
            )
            if len(table) > self._written:
                self._bucket(_EVER).write(table.rows(slice(self._written, None)).tobytes())
                self._written = len(table)
        elif self._changed:
            rows = np.unique(np.concatenate(self._changed))
            seen = table.seen[rows]
            for start in np.unique(seen).tolist():
                self._bucket(start).write(table.rows(rows[seen == start]).tobytes())
            self._changed.clear()
        self._counters.write()

    def _bucket(self, start: int) -> Runs:
        runs = self._buckets.get(start)
        if runs is None:
            key_of = lambda number: run_key(start, number, self._shard)  # noqa: E731
            runs = self._buckets[start] = Runs(self._overlay, key_of, ROW.itemsize)
        return runs


def _cut(times: Int64s, step_us: int) -> Int64s:
    """The beginnings of the buckets of times."""
    times = np.clip(times, -_FAR, _FAR)
    return times - np.mod(times, step_us)


def _are_over(seen: Int64s, at: Int64s, step_us: int) -> npt.NDArray[np.bool_]:
    """Whether the lives of values that were seen last at ``seen`` are over at ``at``, or have not
    begun."""
    over: npt.NDArray[np.bool_] = (seen == NEVER) | (
        at - np.maximum(seen, -_FAR) > TTL_PARTS * step_us
    )
    return over


def _earlier(rows: Int64s, at: Int64s) -> Int64s:
    """The latest bucket in which the same row was seen before, among these."""
    frame = pl.DataFrame({"row": rows, "at": at})
    earlier: Int64s = (
        frame.select(pl.col("at").cum_max().shift(1).over("row"))
        .to_series()
        .fill_null(NEVER)
        .to_numpy()
    )
    return earlier


def _highest_so_far(rows: Int64s, numbers: Int64s) -> Int64s:
    frame = pl.DataFrame({"row": rows, "number": numbers})
    highest: Int64s = frame.select(pl.col("number").cum_max().over("row")).to_series().to_numpy()
    return highest
