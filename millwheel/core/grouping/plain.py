"""Groupings that need no table: by hash, in turn, and the less loaded of two; and the one of
``skew: auto``, whose table has hot keys alone."""

from __future__ import annotations

from dataclasses import replace

from millwheel.core.grouping.base import Grouping, hot_share
from millwheel.core.grouping.tables import EpochTable, Measured, hashed
from millwheel.core.model.keys import Key


class Hash(Grouping):
    """All records of a key go to the same instance."""

    name = "hash"

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return (hashed(key, 0, self.table.instances),)


class Shuffle(Grouping):
    """Each record of any key goes to the next instance: the one that got the fewest."""

    name = "shuffle"

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return self._all


class PartialKey(Grouping):
    """PKG: each key has two instances, and a record goes to the one that got fewer records."""

    name = "pkg"

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return self._two(key)


_STAYS_HOT = 0.5
"""A hot key stays hot down to this part of the threshold, so that keys near it do not come and
go."""


class HotKeys(Grouping):
    """Hot keys go to all instances, all others stay whole on instance 0. The instance of a record
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
