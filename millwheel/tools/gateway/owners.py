"""The owner of a key, from the range tables and the members of a run. One thread writes, others
read."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from millwheel.core.model.keys import Key, key_hash
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.slices.slots import slot_hash


@dataclass(frozen=True, slots=True)
class _Ranges:
    """The shards of one computation in order."""

    los: Sequence[int]
    shards: Sequence[ShardEntry]


@dataclass(slots=True)
class Owners:
    """Every change replaces a whole mapping. ``sliced``: the computations whose key hashes begin
    with slots."""

    sliced: frozenset[str]
    _tables: Mapping[str, _Ranges] = field(default_factory=dict)
    _addresses: Mapping[str, str] = field(default_factory=dict)

    def table(self, table: RangeTable) -> None:
        """Take a new version of a range table."""
        shards = sorted(table.shards, key=lambda entry: entry.range.lo)
        self._tables = {
            **self._tables,
            table.computation: _Ranges([each.range.lo for each in shards], shards),
        }

    def workers(self, members: Mapping[str, bytes]) -> None:
        """Take the new members: incarnations, with the JSON that each published."""
        facts = {name: json.loads(data) for name, data in members.items()}
        self._addresses = {
            name: each["queries"] for name, each in facts.items() if each.get("queries")
        }

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses at which workers answer."""
        return frozenset(self._addresses.values())

    def ready(self) -> str:
        """ "" when questions can be answered, or else a sentence with the reason."""
        if not self._addresses:
            return "no worker answers queries: start the run with --query-port"
        return "" if self._tables else "the range tables of the run are not known yet"

    def owner(self, computation: str, key: Key) -> str:
        """The address of the current owner of the key. If it is unknown, that of any worker, which
        will redirect; "" when no worker answers."""
        entry = self._entry(computation, key)
        address = None if entry is None else self._addresses.get(entry.owner)
        return address or min(self._addresses.values(), default="")

    def others(self, computation: str, key: Key) -> Sequence[str]:
        """The address of the key's standby, if it has one."""
        entry = self._entry(computation, key)
        address = None if entry is None or not entry.standby else self._addresses.get(entry.standby)
        return () if address is None else (address,)

    def snapshot_readers(self, computation: str, key: Key) -> Sequence[str]:
        """The address of a worker that could open the snapshot of the key's shard: always the same
        one for a shard, as long as it lives."""
        entry = self._entry(computation, key)
        if entry is None:
            return ()
        names = self._addresses.keys() - {entry.owner, entry.standby}
        chosen = min(names, key=lambda name: crc32(f"{entry.shard} {name}".encode()), default=None)
        return () if chosen is None else (self._addresses[chosen],)

    def _entry(self, computation: str, key: Key) -> ShardEntry | None:
        ranges = self._tables.get(computation)
        if ranges is None:
            return None
        position = (slot_hash if computation in self.sliced else key_hash)(key)
        return ranges.shards[bisect_right(ranges.los, position) - 1]
