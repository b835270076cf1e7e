"""Standbys: which worker follows which shard, to take it over without replay. Pure, as ``state.py``
is.

A shard of a node that asks for it has one standby, another worker than its owner: one on another
host before one on the owner's, which is expected to die with it; then a spare before one that
serves; then the one that follows the fewest. A spare follows all shards of an owner or none of
them, because it gets all of them together; owners on one host are followed by different spares as
far as there are enough. A standby stays as long as no other worker is better by these rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from millwheel.core.model.names import NO_WORKER, NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry

NodeShard = tuple[NodeName, ShardName]
"""(node, shard)."""


def chosen(
    tables: Iterable[RangeTable], hosts: Mapping[WorkerName, str], serving: Collection[WorkerName]
) -> dict[NodeShard, WorkerName]:
    """The standby of each shard of ``tables`` ("" when no worker is left). ``hosts`` maps the
    workers that may follow, with a seat (``serving``) or without, to their hosts."""
    served = {
        (table.computation, entry.shard): entry
        for table in tables
        for entry in table.shards
        if entry.owner
    }
    spares = {name: host for name, host in hosts.items() if name not in serving}
    to_spares: dict[NodeShard, ShardEntry] = {}
    to_servers: dict[NodeShard, ShardEntry] = {}
    for shard, entry in served.items():
        home = hosts.get(entry.owner)
        fits = spares and (_any_elsewhere(spares, home) or not _any_elsewhere(hosts, home))
        (to_spares if fits else to_servers)[shard] = entry
    return _by_owner(to_spares, spares, hosts) | _one_by_one(to_servers, hosts)


def followers(entries: Iterable[ShardEntry], gone: Collection[WorkerName]) -> Counter[WorkerName]:
    """How many shards of owners that are ``gone`` each worker follows."""
    return Counter(
        entry.standby
        for entry in entries
        if entry.standby and (not entry.owner or entry.owner in gone)
    )


def _by_owner(
    served: Mapping[NodeShard, ShardEntry],
    spares: Mapping[WorkerName, str],
    hosts: Mapping[WorkerName, str],
) -> dict[NodeShard, WorkerName]:
    """Assign all shards of an owner to one spare."""
    assigned: dict[NodeShard, WorkerName] = {}
    owners: Counter[WorkerName] = Counter()
    together: Counter[tuple[str | None, WorkerName]] = Counter()
    for owner in sorted({entry.owner for entry in served.values()}):
        own_shards = {shard: entry for shard, entry in served.items() if entry.owner == owner}
        standbys = Counter(entry.standby for entry in own_shards.values())
        home = hosts.get(owner)
        best = min(
            spares, key=lambda s: (spares[s] == home, together[home, s], -standbys[s], owners[s], s)
        )
        owners[best] += 1
        together[home, best] += 1
        assigned.update(dict.fromkeys(own_shards, best))
    return assigned


def _one_by_one(
    served: Mapping[NodeShard, ShardEntry], hosts: Mapping[WorkerName, str]
) -> dict[NodeShard, WorkerName]:
    """Assign shards to workers that serve others."""
    assigned: dict[NodeShard, WorkerName] = {}
    load: Counter[WorkerName] = Counter(entry.standby for entry in served.values())
    for shard, entry in sorted(served.items()):
        others = sorted(hosts.keys() - {entry.owner})
        far = [name for name in others if hosts[name] != hosts.get(entry.owner)] or others
        if entry.standby not in far and far:
            load[entry.standby] -= 1
            assigned[shard] = min(far, key=lambda name: (load[name], name))
            load[assigned[shard]] += 1
        else:
            assigned[shard] = entry.standby if far else NO_WORKER
    return assigned


def _any_elsewhere(workers: Mapping[WorkerName, str], host: str | None) -> bool:
    return any(other != host for other in workers.values())
