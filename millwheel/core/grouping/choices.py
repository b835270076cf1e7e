"""D-Choices and W-Choices: hot keys get more than two instances, several or all of them."""

from __future__ import annotations

from math import ceil

from millwheel.core.grouping.base import Grouping
from millwheel.core.grouping.tables import EpochTable, Measured, hashed
from millwheel.core.model.keys import Key


class WorkerChoices(Grouping):
    """W-Choices: a hot key goes to whichever of all instances got the fewest records, another key
    to one of two."""

    name = "w-choices"
    counts_keys = True

    def next_table(self, measured: Measured) -> EpochTable:
        routes = {
            hot.key: self._route(hot.key, hot.count / self._frequent.offered) for hot in self._hot()
        }
        return EpochTable(self.table.epoch + 1, self._last + 1, self.table.prices, routes)

    def _route(self, key: Key, share: float) -> tuple[int, ...]:
        return self._all

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return self.table.routes.get(key) or self._two(key)


class DistributionChoices(WorkerChoices):
    """D-Choices: a hot key gets as many instances as its share needs, and one more, by as many hash
    functions."""

    name = "d-choices"

    def _route(self, key: Key, share: float) -> tuple[int, ...]:
        count = min(self.table.instances, max(2, ceil(share * self.table.instances) + 1))
        instances: dict[int, None] = {}
        seed = 0
        while len(instances) < count:
            instances[hashed(key, seed, self.table.instances)] = None
            seed += 1
        return tuple(instances)
