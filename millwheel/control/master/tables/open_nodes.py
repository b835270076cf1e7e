"""The nodes that may need another range table: nodes with a change since their table was last
right. To look at a node costs a look at each of its shards, and a cluster may have a hundred
thousand of them. Pure, as ``state.py`` is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from millwheel.core.model.names import NodeName, ShardName, WorkerName, shard_parts

LOOK_US = 10_000_000
"""How often every node is looked at even without a change: so that no mistake in here lasts."""


class OpenNodes:
    """The nodes of the graph that are open; all are at first.

    A node is closed when its stored table needs no successor. It opens again with any change that a
    successor depends on; all nodes do when the workers change that may take shards, or that are
    dead.
    """

    def __init__(self, nodes: Iterable[NodeName]) -> None:
        self._all = frozenset(nodes)
        self._open = set(self._all)
        self._eligible: frozenset[WorkerName] = frozenset()
        self._dead: Mapping[WorkerName, int | None] = {}
        self._looks_at_us = 0

    def tick(self, now_us: int) -> None:
        """Time passes."""
        if now_us >= self._looks_at_us:
            self._looks_at_us = now_us + LOOK_US
            self.open_all()

    def open(self, *nodes: NodeName) -> None:
        """Something about these nodes has changed."""
        self._open |= self._all.intersection(nodes)

    def open_of(self, shard: ShardName) -> None:
        """Something about a shard has changed."""
        parts = shard_parts(shard)
        if parts is None or parts[0] not in self._all:
            self.open_all()
        else:
            self.open(parts[0])

    def open_all(self) -> None:
        """Something about all nodes has changed."""
        self._open = set(self._all)

    def close(self, node: NodeName) -> None:
        """The stored table of the node needs no successor, as things are."""
        self._open.discard(node)

    def under(
        self, eligible: frozenset[WorkerName], dead: Mapping[WorkerName, int | None]
    ) -> Collection[NodeName]:
        """The open nodes, now that these workers may take shards and those are dead."""
        if eligible != self._eligible or dead != self._dead:
            self._eligible, self._dead = eligible, dead
            self.open_all()
        return self._open
