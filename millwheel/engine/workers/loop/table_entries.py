"""The entries of all range tables as this worker has seen them, and the changes of a new table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from millwheel.core.grouping.tables import Network
from millwheel.core.model.lease import Lease
from millwheel.core.model.names import NO_WORKER, ShardName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.errors import invariant


@dataclass(frozen=True, slots=True)
class News:
    """The difference between a table and the one before: shards with another owner or token, shards
    that no longer exist (``removed``: their entries, which have no owner), and new shards."""

    changed: frozenset[str]
    gone: frozenset[str]
    fresh: frozenset[str]
    removed: tuple[ShardEntry, ...]


class TableEntries:
    """Shards by name, over all nodes."""

    def __init__(self) -> None:
        self._entries: dict[str, ShardEntry] = {}
        self._of_node: dict[str, frozenset[str]] = {}
        self._versions: dict[str, int] = {}
        self.followed: frozenset[str] = frozenset()
        """The shards that have a standby, under any owner."""
        self.addresses: Mapping[str, str] = {}
        """Of every live worker, by incarnation."""
        self.locations: Mapping[str, tuple[str, str]] = {}
        """Of the same: host and rack ("": unknown)."""

    def take(self, table: RangeTable) -> News | None:
        """Follow a newer version of a table; None when this one is not newer."""
        # An older version may come after a newer one. By it, records would go to shards that were
        # split, and commits of a lease that has ended would count as those of the owner.
        if table.version <= self._versions.get(table.computation, -1):
            return None
        self._versions[table.computation] = table.version
        for entry in table.shards:
            former = self._entries.get(entry.shard)
            # With a token that has ended, a zombie would get our records, and be believed.
            invariant(
                former is None or not former.lease.outlived(entry.token),
                f"the token of {entry.shard} goes back to {entry.token} from"
                f" {former and former.token}",
            )
        before = self._of_node.get(table.computation, frozenset())
        names = frozenset(entry.shard for entry in table.shards)
        self._of_node[table.computation] = names
        changed = frozenset(
            entry.shard for entry in table.shards if self._holder(entry.shard) != _held(entry)
        )
        removed = tuple(
            replace(self._entries.pop(gone), owner=NO_WORKER) for gone in sorted(before - names)
        )
        self._entries.update({entry.shard: entry for entry in table.shards})
        self.followed = (self.followed - before - names) | {
            entry.shard for entry in table.shards if entry.standby
        }
        return News(changed, before - names, names - before, removed)

    def owned_at(self, address: str) -> set[str]:
        """The shards of the worker with this address."""
        return {
            entry.shard
            for entry in self._entries.values()
            if self.addresses.get(entry.owner) == address
        }

    def distance(self, shard: ShardName, incarnation: str) -> Network:
        """How far the owner of a shard is from the worker ``incarnation``. An unknown host is the
        same one, as on one machine; an unknown rack is another one."""
        entry = self._entries.get(shard)
        owner = incarnation if entry is None else entry.owner
        if owner == incarnation:
            return Network.PROCESS
        (host, rack), (my_host, my_rack) = (
            self.locations.get(owner, ("", "")),
            self.locations.get(incarnation, ("", "")),
        )
        if host == my_host:
            return Network.HOST
        return Network.RACK if rack and rack == my_rack else Network.ELSEWHERE

    def get(self, shard: ShardName) -> ShardEntry | None:
        """The entry of a shard, None when no table has it."""
        return self._entries.get(shard)

    def lease(self, shard: ShardName) -> Lease | None:
        """The lease of a shard; None when the shard does not exist (any more)."""
        entry = self._entries.get(shard)
        return None if entry is None else entry.lease

    def _holder(self, shard: ShardName) -> tuple[str, int] | None:
        entry = self._entries.get(shard)
        return None if entry is None else _held(entry)

    def __getitem__(self, shard: ShardName) -> ShardEntry:
        return self._entries[shard]

    def __iter__(self) -> Iterator[ShardEntry]:
        return iter(self._entries.values())


def _held(entry: ShardEntry) -> tuple[str, int]:
    return entry.owner, entry.token
