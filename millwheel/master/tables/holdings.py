"""The range tables: as stored, and as they will be when our writes have succeeded. Pure, as ``state.py`` is."""

from __future__ import annotations

from collections.abc import Iterator

from millwheel.core.model.names import NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.errors import invariant


class Holdings:
    """All range tables of one pipeline. Decisions about the future include pending writes; decisions that delete
    something (a membership, a journal) use the stored tables only."""

    def __init__(self) -> None:
        self.stored: dict[NodeName, RangeTable] = {}
        self.writing: dict[NodeName, RangeTable] = {}
        self._failed: set[NodeName] = set()

    def take(self, table: RangeTable) -> None:
        """Take a stored table; versions older than the known one are ignored."""
        known = self.stored.get(table.computation)
        if known is not None and known.version >= table.version:
            return
        if known is not None:
            _check_tokens(known, table)
        self.stored[table.computation] = table
        writing = self.writing.get(table.computation)
        if writing is not None and table.version > writing.version:
            del self.writing[table.computation]

    def lost(self, node: NodeName, stored: RangeTable | None) -> None:
        """Another write of this table came first. Until its content is known, the next attempt waits."""
        known = self.stored.get(node)
        if stored is None or (known is not None and stored.version <= known.version):
            self.failed(node)
        else:
            self.writing.pop(node, None)
            self.take(stored)

    def failed(self, node: NodeName) -> None:
        """Our write of this table had no effect; it counts as in progress until it is time for another attempt."""
        self._failed.add(node)

    def try_again(self) -> None:
        """It is time for another attempt."""
        for node in self._failed:
            self.writing.pop(node, None)
        self._failed.clear()

    def expected(self) -> dict[NodeName, RangeTable]:
        """The tables as if every write in progress had succeeded."""
        return {**self.stored, **self.writing}

    def entry(self, node: NodeName, shard: ShardName) -> ShardEntry | None:
        """One shard as stored."""
        table = self.stored.get(node)
        return None if table is None else table.entry(shard)

    def entries(self) -> Iterator[tuple[NodeName, ShardEntry]]:
        """Every shard as stored, with its node."""
        for table in self.stored.values():
            for entry in table.shards:
                yield table.computation, entry

    def owners(self) -> set[WorkerName]:
        """All workers that own a shard."""
        return {entry.owner for _, entry in self.entries() if entry.owner}

    def mentioned(self) -> set[WorkerName]:
        """All workers whose journals may still be read: owners and ancestors."""
        ancestors = {ancestor.incarnation for _, entry in self.entries() for ancestor in entry.lineage}
        return ancestors | self.owners()


def _check_tokens(known: RangeTable, table: RangeTable) -> None:
    before = {entry.shard: entry.lease for entry in known.shards}
    for entry in table.shards:
        lease = before.get(entry.shard, entry.lease)
        # With a token that a former owner had, a zombie would be believed again.
        invariant(
            not lease.outlived(entry.token),
            f"the token of {entry.shard} went back from {lease.token} to {entry.token} "
            f"in version {table.version} of the range table of {table.computation}",
        )
