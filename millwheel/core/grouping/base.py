"""The one interface of all groupings.

A grouping is a pure machine. Within an epoch it chooses by the table, the key, the position and how
many records of the epoch each instance got so far; completion times that arrive meanwhile have no
effect before the next table. So the table and the counts of a commit determine the choice for every
record behind that commit, and a replay never sends a record to another instance than the one that
may have it already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from millwheel.core.grouping.space_saving import Frequent, SpaceSaving
from millwheel.core.grouping.tables import EpochTable, Measured, Network, hashed
from millwheel.core.model.keys import Key
from millwheel.errors import InvariantError

_MOST_REMEMBERED = 200_000
"""The most keys whose candidates are remembered."""
_SHOWN = 10
"""The number of hot keys that are shown."""
_PAIRS_PER_INSTANCE = 50
"""Ten times as many pairs as the hot threshold of 1/(5n) needs, so that counts of hot keys are
nearly exact."""


def hot_share(instances: int) -> float:
    """The share of the records above which a key is hot: 1/(5n), so there are at most 5n hot
    keys."""
    return 1 / (5 * instances)


def sketch_for(instances: int) -> SpaceSaving:
    """An empty count of keys that is exact enough to find the hot ones of so many instances."""
    return SpaceSaving(1 / (_PAIRS_PER_INSTANCE * instances))


class Grouping(ABC):
    """Chooses an instance for each record, and makes the next epoch's table at the end of a
    window."""

    name: ClassVar[str]
    counts_keys: ClassVar[bool] = False
    """Its tables depend on the frequent keys."""
    goes_by_times: ClassVar[bool] = False
    """Its tables depend on completion times."""

    @property
    def adapts(self) -> bool:
        """Whether its tables depend on earlier records."""
        return self.counts_keys or self.goes_by_times

    def __init__(
        self, table: EpochTable, counts: Sequence[int] = (), network: Sequence[Network] = ()
    ) -> None:
        self.network = tuple(network) or (Network.HOST,) * table.instances
        self._all = tuple(range(table.instances))
        self._memo: dict[Key, tuple[int, ...]] = {}
        self._frequent = sketch_for(table.instances)
        self.table = table
        self.resume(table, counts)
        self.begin_window()

    def resume(self, table: EpochTable, counts: Sequence[int] = ()) -> None:
        """Continue in an epoch in which the instances have got ``counts`` records; without them, at
        its beginning."""
        if table is not self.table:
            self.table = table
            self._memo = {}
        self.counts = list(counts) or [0] * table.instances
        self._loads = [
            price * (count + 1) for price, count in zip(table.prices, self.counts, strict=True)
        ]
        self._last = table.first + sum(self.counts) - 1

    def choose(self, position: int, key: Key) -> int:
        """The instance of the next record. Raises InvariantError for a position that is not above
        the last one: a caller that chooses again for a record must begin from the counts of an
        earlier commit."""
        if position <= self._last:
            raise InvariantError(
                f"position {position} after {self._last}: a grouping chooses once, in order"
            )
        self.count((key,))
        return self.choose_all((key,), position)[0]

    def choose_all(self, keys: Sequence[Key], last: int) -> list[int]:
        """The instances of the next records, the last of which has position ``last``; the keys are
        not counted."""
        self._last = last
        counts, loads, prices, memo = self.counts, self._loads, self.table.prices, self._memo
        instances: list[int] = []
        for key in keys:
            among = memo.get(key)
            if among is None:
                among = self._remembered(key)
            best = among[0]
            if len(among) == 2:  # most keys of most groupings
                if loads[among[1]] < loads[best]:
                    best = among[1]
            elif len(among) > 2:
                best = min(among, key=loads.__getitem__)
            counts[best] += 1
            # From the count and not by addition: a replay that begins in between must find the same
            # loads, to the bit.
            loads[best] = prices[best] * (counts[best] + 1)
            instances.append(best)
        return instances

    def count(self, keys: Sequence[Key]) -> None:
        """Count keys, for the next table: all of them, or a sample."""
        if self.counts_keys:
            for key in keys:
                self._frequent.offer(key)

    def next_table(self, measured: Measured) -> EpochTable:
        """The table of the epoch that begins behind the last record chosen for. Commit it before
        :meth:`begin`."""
        return EpochTable(self.table.epoch + 1, self._last + 1, self.table.prices)

    def begin(self, table: EpochTable) -> None:
        """Choose by a committed table from its first position on."""
        if table.first <= self._last:
            raise InvariantError(
                f"epoch {table.epoch} begins at {table.first}, the next record is {self._last + 1}"
            )
        self.resume(table)
        self.begin_window()

    def begin_window(self) -> None:
        """Forget the counted keys, but for the hottest, which are shown."""
        counted = self._frequent.offered
        self.hottest = tuple((each.key, each.count / counted) for each in self._hot()[:_SHOWN])
        self._frequent = sketch_for(self.table.instances)

    @property
    def counted(self) -> int:
        """The number of counted keys of the window."""
        return self._frequent.offered

    @abstractmethod
    def _candidates(self, key: Key) -> tuple[int, ...]:
        """The instances that may get records of a key in this epoch, by the table alone. The one
        with the least load gets the next record, the first of equals."""

    def _remembered(self, key: Key) -> tuple[int, ...]:
        if len(self._memo) >= _MOST_REMEMBERED:
            self._memo.clear()
        candidates = self._memo[key] = self._candidates(key)
        return candidates

    def _hot(self) -> list[Frequent]:
        """The hot keys of the window so far, the most frequent first."""
        return self._frequent.above(hot_share(self.table.instances))

    def _two(self, key: Key) -> tuple[int, int]:
        instances = self.table.instances
        return hashed(key, 0, instances), hashed(key, 1, instances)
