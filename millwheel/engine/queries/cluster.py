"""The slots of each worker, as Redis Cluster describes them. Pure.

The slots are those of one computation: the first one with slices, or else the first. Other
computations may have other owners; MOVED redirects questions about them. A slot without an owner is
listed under its standby, or else under any worker, which replies TRYAGAIN. The standby of a shard
is listed as the replica of its slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha1

from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.slices.slots import SLOTS, slots_within
from millwheel.engine.queries.resp import array, bulk, mapping, number


@dataclass(frozen=True, slots=True)
class SlotNode:
    """A worker that answers, and its slots as (first, last), both inclusive."""

    id: str
    host: str
    port: int
    slots: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SlotGroup:
    """Slots of one owner, and the standby that follows them; "" for none."""

    owner: str
    replica: str
    slots: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class ClusterMap:
    """The known state of the run: the ``addresses`` (host:port) at which workers answer, by
    incarnation, and the range table of the ``computation`` that defines the slots."""

    me: str
    computation: str
    addresses: Mapping[str, str] = field(default_factory=dict)
    table: RangeTable | None = None

    def follow(self, table: RangeTable) -> None:
        """Take a new version of a range table; tables of other computations are ignored."""
        if table.computation == self.computation:
            self.table = table

    def groups(self) -> list[SlotGroup]:
        """All slots, by owner and replica."""
        slots: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for entry in (
            ()
            if self.table is None
            else sorted(self.table.shards, key=lambda entry: entry.range.lo)
        ):
            first, last = slots_within(entry.range)
            if first <= last:
                spans = slots.setdefault(self._owner_and_replica(entry), [])
                if spans and spans[-1][1] + 1 == first:
                    first = spans.pop()[0]
                spans.append((first, last))
        return [
            SlotGroup(*nodes, tuple(pairs))
            for nodes, pairs in slots.items()
            if nodes[0] in self.addresses
        ]

    def _owner_and_replica(self, entry: ShardEntry) -> tuple[str, str]:
        replica = entry.standby if entry.standby in self.addresses else ""
        # clients require an owner for every slot
        any_worker = replica or min(self.addresses, default=self.me)
        owner = entry.owner if entry.owner in self.addresses else any_worker
        return owner, "" if owner == replica else replica

    def nodes(self) -> list[SlotNode]:
        """Every worker that answers, this one first."""
        slots: dict[str, list[tuple[int, int]]] = {}
        for group in self.groups():
            slots.setdefault(group.owner, []).extend(group.slots)
        names = sorted(self.addresses, key=lambda name: (name != self.me, name))
        return [_node(name, self.addresses[name], _joined(slots.get(name, ()))) for name in names]

    def slots_reply(self) -> bytes:
        """CLUSTER SLOTS: the first and last slot of each group, its owner, and its replica."""
        rows = []
        for group in self.groups():
            nodes = [_where(self._node_of(name)) for name in (group.owner, group.replica) if name]
            rows += [array([number(first), number(last), *nodes]) for first, last in group.slots]
        return array(rows)

    def shards_reply(self, protocol: int) -> bytes:
        """CLUSTER SHARDS. Workers without slots are shards of their own."""
        groups = self.groups()
        names = {name for group in groups for name in (group.owner, group.replica)}
        groups += [SlotGroup(name, "", ()) for name in sorted(self.addresses) if name not in names]
        groups.sort(key=lambda group: (group.owner != self.me, group.owner))
        return array([self._shard(group, protocol) for group in groups])

    def _shard(self, group: SlotGroup, protocol: int) -> bytes:
        edges = [number(edge) for pair in group.slots for edge in pair]
        nodes = [_about(self._node_of(group.owner), b"master", protocol)]
        if group.replica:
            nodes.append(_about(self._node_of(group.replica), b"replica", protocol))
        return mapping({"slots": array(edges), "nodes": array(nodes)}, protocol)

    def _node_of(self, name: str) -> SlotNode:
        return _node(name, self.addresses[name])

    def nodes_reply(self) -> bytes:
        """CLUSTER NODES."""
        lines = []
        for index, node in enumerate(self.nodes()):
            slots = "".join(
                f" {first}-{last}" if first < last else f" {first}" for first, last in node.slots
            )
            flags = "myself,master" if index == 0 and self.me in self.addresses else "master"
            lines.append(
                f"{node.id} {node.host}:{node.port}@{node.port} {flags} - 0 0 1 connected{slots}\n"
            )
        return bulk("".join(lines).encode())

    def info_reply(self) -> bytes:
        """CLUSTER INFO."""
        nodes = self.nodes()
        held = sum(last - first + 1 for node in nodes for first, last in node.slots)
        state = "ok" if held == SLOTS else "fail"
        size = sum(1 for node in nodes if node.slots)
        lines = (
            f"cluster_enabled:1\r\ncluster_state:{state}\r\ncluster_slots_assigned:{held}\r\ncluster_slots_ok:{held}\r\n"
            f"cluster_known_nodes:{len(nodes)}\r\ncluster_size:{size}\r\n"
        )
        return bulk(lines.encode())


def _node(name: str, address: str, slots: Sequence[tuple[int, int]] = ()) -> SlotNode:
    host, _, port = address.rpartition(":")
    return SlotNode(node_id(name), host.strip("[]"), int(port), tuple(slots))


def node_id(incarnation: str) -> str:
    """40 hexadecimal digits, as Redis Cluster's nodes have."""
    return sha1(incarnation.encode(), usedforsecurity=False).hexdigest()


def _where(node: SlotNode) -> bytes:
    return array([bulk(node.host.encode()), number(node.port), bulk(node.id.encode())])


def _about(node: SlotNode, role: bytes, protocol: int) -> bytes:
    about = {
        "id": bulk(node.id.encode()),
        "port": number(node.port),
        "ip": bulk(node.host.encode()),
        "endpoint": bulk(node.host.encode()),
        "role": bulk(role),
        "replication-offset": number(0),
        "health": bulk(b"online"),
    }
    return mapping(about, protocol)


def _joined(pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Pairs in order, neighbours as one."""
    spans: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if spans and spans[-1][1] + 1 == first:
            first = spans.pop()[0]
        spans.append((first, last))
    return tuple(spans)
