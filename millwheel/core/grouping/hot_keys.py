"""Which keys of one partition are divided, by position: epochs, each with a table that is committed before its use.

A new owner reads again from a committed position, and consumers recognise what they have by its position. So a record
must reach the instance that it reached before. An epoch says which keys are hot between two positions. Nothing beyond
the last epoch has ever been sent, so the next one may be decided by whatever has been counted by then, also by an owner
that has counted nothing; and what an epoch holds is never decided again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millwheel.core.grouping.base import hot_share, sketch_for
from millwheel.core.model.keys import Key
from millwheel.errors import InvariantError

Tables = Mapping[str, frozenset[Key]]
"""The hot keys of each node."""

_READS = 8
"""An epoch is as long as so many reads, so that most reads wait for no commit. The first one of an owner is one read
long, since nothing has been counted before it, and each one after it twice as long as the one before."""
MOST_COUNTED = 2_000
"""So many records of a read are counted, evenly spread: enough to find a key that has 1/(5n) of them."""
_STAYS_HOT = 0.5
"""A hot key stays hot down to this part of the threshold, so that keys near it do not come and go."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The hot keys of the records with positions above ``first`` and up to ``last``."""

    first: int
    last: int
    tables: Tables


def counted_of(records: int) -> slice:
    """Which of so many records are counted."""
    return slice(0, None, 1 + records // MOST_COUNTED)


class HotKeys:
    """The hot keys of one partition for each node that divides only those; ``instances`` has the nodes.

    >>> hot = HotKeys({"minutes": 2})
    >>> hot.extended(10)
    Epoch(first=0, last=10, tables={'minutes': frozenset()})
    >>> hot.count("minutes", ["a"] * 12)
    >>> hot.extended(20)
    Epoch(first=10, last=30, tables={'minutes': frozenset({'a'})})
    >>> hot.extended(30), hot.are_hot("minutes", ["a", "a", "b"], [10, 11, 11])
    (None, [False, True, False])
    >>> hot.extended(40)
    Epoch(first=30, last=70, tables={'minutes': frozenset({'a'})})
    """

    def __init__(self, instances: Mapping[str, int], epochs: Sequence[Epoch] = (), position: int = 0) -> None:
        """``epochs`` are the committed ones, by position; reading goes on at ``position``."""
        self._instances = dict(instances)
        self._epochs = list(epochs)
        self._position = position
        self._longest = 1
        self._reads = 1
        self._counted = {node: sketch_for(count) for node, count in self._instances.items()}

    @property
    def nodes(self) -> Mapping[str, int]:
        """The nodes, with the number of instances that a hot key has."""
        return self._instances

    @property
    def unknown(self) -> bool:
        """Whether no key can be hot yet, since nothing has been counted."""
        return not self._epochs

    def extended(self, position: int) -> Epoch | None:
        """Call with the end of each read before its records are routed. The epoch to commit before they are sent; None
        while the last one reaches that far."""
        self._longest = max(self._longest, position - self._position)
        self._position = position
        first = self._epochs[-1].last if self._epochs else 0
        if position <= first:
            return None
        last = position + (self._reads - 1) * self._longest
        self._reads = min(2 * self._reads, _READS)
        epoch = Epoch(first, last, {node: self._table(node) for node in self._instances})
        self._epochs.append(epoch)
        return epoch

    def count(self, node: str, keys: Sequence[Key]) -> None:
        """Count keys of a read, for the next table."""
        sketch = self._counted[node]
        for key in keys:
            sketch.offer(key)

    def are_hot(self, node: str, keys: Sequence[Key], positions: Sequence[int]) -> list[bool]:
        """Whether the key of each record is hot at its position. Positions rise. Raises InvariantError for one that no
        epoch has."""
        found: list[bool] = []
        for hot, rows in self.stretches(node, np.array(positions, np.int64)):
            found += [key in hot for key in keys[rows]] if hot else [False] * (rows.stop - rows.start)
        return found

    def stretches(self, node: str, positions: npt.NDArray[np.int64]) -> Iterator[tuple[frozenset[Key], slice]]:
        """(hot keys, the rows of one epoch) of records whose positions rise, for all of them in order."""
        row = 0
        for epoch in self._epochs:
            end = int(np.searchsorted(positions, epoch.last, side="right"))
            if end > row:
                if positions[row] <= epoch.first:
                    break
                yield epoch.tables.get(node, frozenset()), slice(row, end)
                row = end
        if row < len(positions):
            raise InvariantError(f"position {positions[row]} lies in no epoch of the hot keys of {node}")

    def forget(self, position: int) -> list[Epoch]:
        """The epochs that nobody can ask for once all up to ``position`` has been applied. The last one stays: it says
        how far anything can have been sent."""
        gone = [epoch for epoch in self._epochs[:-1] if epoch.last <= position]
        self._epochs = self._epochs[len(gone) :]
        return gone

    def _table(self, node: str) -> frozenset[Key]:
        """The next table: the one before as long as too little is counted, since then any key looks hot."""
        instances, sketch = self._instances[node], self._counted[node]
        before = self._epochs[-1].tables.get(node, frozenset()) if self._epochs else frozenset()
        share = hot_share(instances)
        if sketch.offered * share <= 1:
            return before
        self._counted[node] = sketch_for(instances)
        hot = {found.key for found in sketch.above(share)}
        return frozenset(hot | {found.key for found in sketch.above(share * _STAYS_HOT) if found.key in before})
