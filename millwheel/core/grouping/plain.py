"""Groupings that need no table: by hash, in turn, and the lesser loaded of two."""

from __future__ import annotations

from millwheel.core.grouping.base import Grouping
from millwheel.core.grouping.tables import hashed
from millwheel.core.model.keys import Key


class Hash(Grouping):
    """All records of a key go to the same instance."""

    name = "hash"

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return (hashed(key, 0, self.table.instances),)


class Shuffle(Grouping):
    """Each record goes to the next instance, whatever its key: the one that got the fewest."""

    name = "shuffle"

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return self._all


class PartialKey(Grouping):
    """PKG: each key has two instances, and a record goes to the one that got fewer records."""

    name = "pkg"

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return self._two(key)
