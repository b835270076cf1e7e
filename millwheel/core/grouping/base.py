"""The one interface of all groupings.

A grouping is a pure machine. Within an epoch it chooses by the table, the key, the position and how many records of the
epoch each instance got so far; completion times that arrive meanwhile have no effect before the next table. So the
table and the counts of a commit determine the choice for every record behind that commit, and a replay never sends a
record to another instance than the one that may have it already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from millwheel.core.grouping.space_saving import Frequent, SpaceSaving
from millwheel.core.grouping.tables import EpochTable, Measured, Network, hashed
from millwheel.core.model.keys import Key
from millwheel.errors import InvariantError

_PAIRS_PER_INSTANCE = 50
"""Ten times as many as the hot threshold of 1/(5n) needs, so that counts of hot keys are nearly exact."""


def hot_share(instances: int) -> float:
    """A key with more than this share of the records is hot: 1/(5n), so there are at most 5n hot keys."""
    return 1 / (5 * instances)


def sketch_for(instances: int) -> SpaceSaving:
    """An empty count of keys that is exact enough to find the hot ones of so many instances."""
    return SpaceSaving(1 / (_PAIRS_PER_INSTANCE * instances))


class Grouping(ABC):
    """Chooses an instance for each record, and makes the next epoch's table at the end of a window."""

    name: ClassVar[str]
    counts_keys: ClassVar[bool] = False
    """It needs to know the frequent keys."""

    def __init__(self, table: EpochTable, counts: Sequence[int] = (), network: Sequence[Network] = ()) -> None:
        self.table = table
        self.counts = list(counts) or [0] * table.instances
        self.network = tuple(network) or (Network.HOST,) * table.instances
        self._position = table.first + sum(self.counts)
        self._all = tuple(range(table.instances))
        self._new_window()

    def choose(self, position: int, key: Key) -> int:
        """The instance of the next record. Raises InvariantError for any position but the next one: a caller that
        chooses again for a record must begin from the counts of an earlier commit."""
        if position != self._position:
            raise InvariantError(f"position {position} after {self._position - 1}: a grouping chooses once, in order")
        self._position += 1
        if self.counts_keys:
            self._frequent.offer(key)
        chosen = self._instance(position, key)
        self.counts[chosen] += 1
        return chosen

    def next_table(self, measured: Measured) -> EpochTable:
        """The table of the epoch that begins behind the last record chosen for. Commit it before :meth:`begin`."""
        return EpochTable(self.table.epoch + 1, self._position, self.table.prices)

    def begin(self, table: EpochTable) -> None:
        """Choose by a committed table from its first position on."""
        if table.first != self._position:
            raise InvariantError(f"epoch {table.epoch} begins at {table.first}, the next record is {self._position}")
        self.table = table
        self.counts = [0] * table.instances
        self._new_window()

    @abstractmethod
    def _instance(self, position: int, key: Key) -> int:
        """The instance of a record, by the table and the counts alone."""

    def _hot(self) -> list[Frequent]:
        """The hot keys of the window so far, the most frequent first."""
        return self._frequent.above(hot_share(self.table.instances))

    def _two(self, key: Key) -> tuple[int, int]:
        instances = self.table.instances
        return hashed(key, 0, instances), hashed(key, 1, instances)

    def _new_window(self) -> None:
        self._frequent = sketch_for(self.table.instances)
