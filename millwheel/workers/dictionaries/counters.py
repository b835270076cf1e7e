"""How far each partition of a dictionary has counted: one more than its highest number.

That is stored only where no run tells it: for values that are entries by themselves, and for those that were
forgotten.
"""

from __future__ import annotations

import numpy as np

from millwheel.core.formats.number_runs import Int64s
from millwheel.workers.dictionaries.singles import Singles


class Counters:
    """The next numbers of all partitions. ``counted``: how far each has counted by what is in runs."""

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
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else ordered
        lengths = np.diff(np.append(first, len(ordered)))
        numbers = np.empty(len(partitions), np.int64)
        numbers[order] = self._next[ordered] + np.arange(len(ordered)) - np.repeat(first, lengths)
        self._next[ordered[first]] += lengths
        return numbers

    def store(self, partitions: Int64s) -> None:
        """From the next :meth:`write` on, no run tells how far these have counted."""
        self._read_stored(partitions)
        self._to_store.update(np.unique(partitions).tolist())

    def write(self) -> None:
        """Put what is to be stored into the commit of this bundle."""
        for partition in sorted(self._to_store):
            self._stored.put_counted(partition, int(self._next[partition]))
        self._to_store.clear()

    def _read_stored(self, partitions: Int64s) -> None:
        missing = np.unique(partitions[~self._read[partitions]])
        if len(missing):
            stored = np.array(self._stored.counted(missing.tolist()), np.int64)
            self._next[missing] = np.maximum(self._next[missing], stored)
            self._read[missing] = True
