"""The range tables: as stored, and as they will be when our writes have succeeded. Pure, as
``state.py`` is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from millwheel.core.model.names import NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.errors import invariant


@dataclass(frozen=True, slots=True)
class TableFacts:
    """``owners`` contains "" when a shard has none. ``mentioned`` are owners and ancestors,
    ``burdens`` how many shards each worker has or is about to have, ``moving`` the number of
    planned moves; ``changing``: a shard is to be moved, split or merged; ``followed`` are the
    shards with a standby."""

    owners: frozenset[WorkerName]
    mentioned: frozenset[WorkerName]
    burdens: Mapping[WorkerName, int]
    moving: int
    changing: bool
    followed: tuple[ShardEntry, ...]


def facts_of(table: RangeTable) -> TableFacts:
    """All of it, in one pass."""
    owners = frozenset(entry.owner for entry in table.shards)
    ancestors = {ancestor.incarnation for entry in table.shards for ancestor in entry.lineage}
    moving = sum(1 for entry in table.shards if entry.next_owner)
    return TableFacts(
        owners=owners,
        mentioned=frozenset(name for name in owners | ancestors if name),
        burdens=Counter(entry.next_owner or entry.owner for entry in table.shards),
        moving=moving,
        changing=moving > 0 or any(entry.resharded for entry in table.shards),
        followed=tuple(entry for entry in table.shards if entry.standby),
    )


class Holdings:
    """All range tables of one pipeline. Decisions about the future include pending writes;
    decisions that delete something (a membership, a journal) use the stored tables only."""

    def __init__(self) -> None:
        self.stored: dict[NodeName, RangeTable] = {}
        self.writing: dict[NodeName, RangeTable] = {}
        self._failed: set[NodeName] = set()
        self._facts: dict[NodeName, TableFacts] = {}
        self._owned: Counter[WorkerName] = Counter()
        self._mentioned: Counter[WorkerName] = Counter()
        """In how many tables each worker is."""

    def take(self, table: RangeTable) -> None:
        """Take a stored table; versions older than the current one are ignored."""
        current = self.stored.get(table.computation)
        if current is not None and current.version >= table.version:
            return
        if current is not None:
            _check_tokens(current, table)
        self.stored[table.computation] = table
        self._note(table)
        writing = self.writing.get(table.computation)
        if writing is not None and table.version > writing.version:
            del self.writing[table.computation]

    def lost(self, node: NodeName, stored: RangeTable | None) -> None:
        """Another write of this table came first. Until its content arrives, the next attempt
        waits."""
        current = self.stored.get(node)
        if stored is None or (current is not None and stored.version <= current.version):
            self.failed(node)
        else:
            self.writing.pop(node, None)
            self.take(stored)

    def failed(self, node: NodeName) -> None:
        """Our write of this table had no effect; it counts as in progress until it is time for
        another attempt."""
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
        return {name for name in self._owned if name}

    def mentioned(self) -> Collection[WorkerName]:
        """All workers whose journals may still be read: owners and ancestors."""
        return self._mentioned.keys()

    def facts(self, node: NodeName) -> TableFacts:
        """The facts of the stored table of a node. Raises KeyError when there is none."""
        return self._facts[node]

    def every(self) -> Collection[TableFacts]:
        """The facts of each stored table."""
        return self._facts.values()

    def burdens(self) -> Mapping[WorkerName, int]:
        """How many shards each worker has or is about to have once every write in progress has
        succeeded."""
        total: Counter[WorkerName] = Counter()
        for node, facts in self._facts.items():
            if node not in self.writing:
                total.update(facts.burdens)
        for table in self.writing.values():
            total.update(facts_of(table).burdens)
        return total

    def validate(self) -> None:
        """Raise InvariantError unless the kept facts are those of the tables. For tests: it looks
        at all."""
        facts = {node: facts_of(table) for node, table in self.stored.items()}
        invariant(
            self._facts == facts,
            "the kept facts of the range tables are not those of the stored ones",
        )
        owned = Counter(name for each in facts.values() for name in each.owners)
        invariant(
            self._owned == owned,
            f"shards are owned by {dict(owned)}, but counted as {dict(self._owned)}",
        )
        mentioned = Counter(name for each in facts.values() for name in each.mentioned)
        invariant(
            self._mentioned == mentioned,
            f"tables name {mentioned}, but counted is {self._mentioned}",
        )
        shards = Counter(entry.shard for _, entry in self.entries())
        twice = [shard for shard, times in shards.items() if times > 1]
        invariant(not twice, f"two entries have the names {twice}")
        invariant(
            self._failed <= self.writing.keys() | self.stored.keys(),
            "a write failed that was not begun",
        )
        for node, table in self.writing.items():
            stored = self.stored.get(node)
            if stored is not None and table.version == stored.version:
                _check_tokens(stored, table)

    def _note(self, table: RangeTable) -> None:
        """Another table of this node is stored from now on."""
        before, after = self._facts.get(table.computation), facts_of(table)
        self._facts[table.computation] = after
        for counts, now, then in (
            (self._owned, after.owners, before.owners if before else frozenset()),
            (self._mentioned, after.mentioned, before.mentioned if before else frozenset()),
        ):
            counts.update(now - then)
            for name in then - now:
                counts[name] -= 1
                if not counts[name]:
                    del counts[name]


def _check_tokens(current: RangeTable, table: RangeTable) -> None:
    """Raise InvariantError where a shard would get an earlier token."""
    before = {entry.shard: entry.lease for entry in current.shards}
    for entry in table.shards:
        lease = before.get(entry.shard, entry.lease)
        # With a token that a former owner had, reports of a zombie would count again.
        invariant(
            not lease.outlived(entry.token),
            f"the token of {entry.shard} went back from {lease.token} to {entry.token} "
            f"in version {table.version} of the range table of {table.computation}",
        )
