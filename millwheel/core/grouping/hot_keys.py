"""Hot keys only: the grouping of ``skew: auto``."""

from __future__ import annotations

from dataclasses import replace

from millwheel.core.grouping.base import Grouping, hot_share
from millwheel.core.grouping.tables import EpochTable, Measured
from millwheel.core.model.keys import Key

_STAYS_HOT = 0.5
"""A hot key stays hot down to this part of the threshold, so that keys near it do not come and
go."""


class HotKeys(Grouping):
    """Hot keys go to all instances, all others stay whole on instance 0. Which of all gets a record
    is a function of its number, so an epoch has no counts (see core/pipeline/skew.py)."""

    name = "auto"
    counts_keys = True

    def next_table(self, measured: Measured) -> EpochTable:
        share, before = hot_share(self.table.instances), self.table.routes
        hot = {each.key for each in self._frequent.above(share)}
        hot |= {each.key for each in self._frequent.above(share * _STAYS_HOT) if each.key in before}
        return replace(super().next_table(measured), routes=dict.fromkeys(hot, self._all))

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return self.table.routes.get(key) or (0,)
