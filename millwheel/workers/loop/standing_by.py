"""This worker's duties as a standby, from the range tables. Part of the loop: it only calls the port."""

from __future__ import annotations

from collections.abc import Iterable

from millwheel.core.model.range_table import ShardEntry
from millwheel.workers.ports import Followers


class StandingBy:
    """Follows the shards whose entries name us as their standby. A shard that has become ours is left to its recovery,
    which takes what was followed."""

    def __init__(self, incarnation: str, followers: Followers) -> None:
        self._incarnation = incarnation
        self._followers = followers
        self._followed: set[str] = set()

    def look(self, entries: Iterable[ShardEntry], buried: Iterable[ShardEntry]) -> None:
        """Entries as they are now, and those of shards that are no more."""
        for gone in buried:
            if gone.shard in self._followed:
                self._forget(gone)
        for entry in entries:
            if entry.standby == self._incarnation and entry.owner not in ("", self._incarnation):
                self._followed.add(entry.shard)
                self._followers.follow(entry)
            elif entry.shard in self._followed and entry.owner:
                self._forget(entry)

    def _forget(self, entry: ShardEntry) -> None:
        self._followed.discard(entry.shard)
        if entry.owner != self._incarnation:
            self._followers.drop(entry.shard)
