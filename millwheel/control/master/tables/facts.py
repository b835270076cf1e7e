"""What a range table says in all, computed once for each version of it: many decisions ask, and a
table may be long. Pure, as ``state.py`` is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from millwheel.core.model.names import WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry


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
