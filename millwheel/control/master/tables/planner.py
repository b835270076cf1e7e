"""Plans ownership: first tilings, the best owner of an orphan, and the moves that even out the
load.

A worker's burden is the number of its shards by its weight: first per node, because shards of one
node do equal work, then in all. A plan counts a shard that moves as its next owner's already. Every
move lowers the imbalance of its node, or of the total at an equal imbalance of its node, so plans
end and nothing moves to and fro.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heapreplace

from millwheel.core.model.names import (
    FIRST_TOKEN,
    NO_WORKER,
    NodeName,
    ShardName,
    WorkerName,
    shard_name,
)
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import SPACE, tile
from millwheel.core.pipeline.graph import NodeKind

_SHARDS_PER_WORKER = 2  # so that one can move and the others stay even
_FIXED = {
    NodeKind.SOURCE: (
        "a source is read by partitions, which no key divides; its shards can be moved"
    ),
    NodeKind.SINK: "files and cuts of a sink are named after its shards; its shards can be moved",
}


def why_fixed(kind: NodeKind) -> str:
    """Why shards of such a node can be neither split nor merged, "" when they can be."""
    return _FIXED.get(kind, "")


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """A node of the graph that must be served; ``shards`` is the requested number, None for the
    default. ``fixed`` is the reason why its shards can be neither split nor merged ("": they can
    be). ``standby``: each shard is to be followed. The edges of new ranges are multiples of
    ``grain``. ``turn``: which worker is first to get shards of it."""

    name: NodeName
    shards: int | None = None
    fixed: str = ""
    standby: bool = False
    grain: int = 1
    turn: int = 0

    def count(self, expected_workers: int) -> int:
        """How many shards the node starts with."""
        return min(self.shards or _SHARDS_PER_WORKER * expected_workers, SPACE // self.grain)


@dataclass(frozen=True, slots=True)
class Move:
    """A planned move of one shard."""

    node: NodeName
    shard: ShardName
    worker: WorkerName


class Census:
    """How many shards each worker has or is about to have, per node and in all. ``hosts`` maps
    workers to their hosts, dead workers included, ``weights`` to their share relative to a worker
    of weight 1. Most decisions do not use it, so it is counted on first use."""

    def __init__(
        self,
        workers: Collection[WorkerName],
        tables: Iterable[RangeTable],
        hosts: Mapping[WorkerName, str] | None = None,
        weights: Mapping[WorkerName, float] | None = None,
    ) -> None:
        self._workers = sorted(workers)
        self._hosts = hosts or {}
        self._weights = weights or {}
        self._tables = tuple(tables)

    @cached_property
    def _of_node(self) -> Counter[tuple[NodeName, WorkerName]]:
        return Counter(
            (t.computation, entry.next_owner or entry.owner)
            for t in self._tables
            for entry in t.shards
        )

    @cached_property
    def _total(self) -> Counter[WorkerName]:
        total: Counter[WorkerName] = Counter()
        for (_, worker), count in self._of_node.items():
            total[worker] += count
        return total

    def add(self, node: NodeName, worker: WorkerName) -> None:
        """A shard of ``node`` goes to ``worker``."""
        self._total[worker] += 1
        self._of_node[node, worker] += 1

    def move(self, node: NodeName, giver: WorkerName, taker: WorkerName) -> None:
        """A shard of ``node`` changes hands."""
        self._total[giver] -= 1
        self._of_node[node, giver] -= 1
        self.add(node, taker)

    def burdens(self) -> Mapping[WorkerName, int]:
        """How many shards each worker has or is about to have."""
        return self._total

    def least(self, node: NodeName, last_owner: WorkerName = NO_WORKER) -> WorkerName:
        """The worker that should get the next shard of ``node``, "" when there is none.

        Of those with the same burden, one on the machine of the last owner: it may have the files
        of the snapshot.
        """
        near = self._hosts.get(last_owner)

        def burden(worker: WorkerName) -> tuple[float, float, bool, WorkerName]:
            return (
                *self._with_one_more(node, worker),
                near is None or self._hosts.get(worker) != near,
                worker,
            )

        return min(self._workers, key=burden, default=NO_WORKER)

    def deal(self, node: NodeName, count: int) -> list[WorkerName]:
        """Give ``count`` new shards of ``node`` away, one after the other: each to
        :meth:`least`."""
        if not self._workers:
            return [NO_WORKER] * count
        heap = [(*self._with_one_more(node, worker), worker) for worker in self._workers]
        heapify(heap)
        dealt: list[WorkerName] = []
        for _ in range(count):
            worker = heap[0][2]
            dealt.append(worker)
            self.add(node, worker)
            heapreplace(heap, (*self._with_one_more(node, worker), worker))
        return dealt

    def uneven_pair(self, node: NodeName) -> tuple[WorkerName, WorkerName] | None:
        """A giver and a taker that has less of ``node``, by its weight, also with one more
        shard."""
        if not self._workers:
            return None
        giver = max(self._workers, key=lambda worker: self._burden(node, worker))
        taker = self.least(node)
        helps = self._with_one_more(node, taker)[0] < self._burden(node, giver)[0]
        return (giver, taker) if helps else None

    def uneven_total(
        self, nodes: Iterable[NodeName]
    ) -> tuple[NodeName, WorkerName, WorkerName] | None:
        """A node, giver and taker such that the move evens totals and leaves the node as even as it
        was."""
        if not self._workers:
            return None
        giver = max(self._workers, key=lambda worker: self._total[worker] / self._weight(worker))
        taker = min(
            self._workers, key=lambda worker: (self._total[worker] + 1) / self._weight(worker)
        )
        if (self._total[taker] + 1) / self._weight(taker) >= self._total[giver] / self._weight(
            giver
        ):
            return None
        if self._weight(taker) < self._weight(giver):  # the node would be less even than before
            return None
        candidates = (
            node
            for node in nodes
            if self._burden(node, giver)[0] >= self._with_one_more(node, taker)[0]
        )
        node = next(candidates, None)
        return None if node is None else (node, giver, taker)

    def _weight(self, worker: WorkerName) -> float:
        return self._weights.get(worker, 1)

    def _burden(self, node: NodeName, worker: WorkerName) -> tuple[float, float]:
        weight = self._weight(worker)
        return self._of_node[node, worker] / weight, self._total[worker] / weight

    def _with_one_more(self, node: NodeName, worker: WorkerName) -> tuple[float, float]:
        weight = self._weight(worker)
        return (self._of_node[node, worker] + 1) / weight, (self._total[worker] + 1) / weight


def first_table(demand: NodeDemand, expected_workers: int, census: Census) -> RangeTable:
    """The first table of a node: equal ranges, spread over the workers of the census, each worker's
    side by side. A source's partitions lie evenly in the key space, so however few there are, all
    workers read. Those of two sources with one partition each lie at the same point; by their turns
    different workers own it."""
    pieces = tile(demand.count(expected_workers), demand.grain)
    counts = list(Counter(census.deal(demand.name, len(pieces))).items())
    first = demand.turn % len(counts)
    owners = [owner for owner, count in (*counts[first:], *counts[:first]) for _ in range(count)]
    named = enumerate(zip(pieces, owners, strict=True))
    shards = [
        ShardEntry(shard_name(demand.name, number), piece, owner, token=FIRST_TOKEN)
        for number, (piece, owner) in named
    ]
    return RangeTable(demand.name, tuple(shards))


def plan_moves(
    tables: Collection[RangeTable],
    workers: Collection[WorkerName],
    leaving: Collection[WorkerName],
    room: int,
    state_bytes: Mapping[ShardName, int],
    weights: Mapping[WorkerName, float] | None = None,
) -> list[Move]:
    """At most ``room`` moves that empty ``leaving`` workers and even out the rest; [] when all is
    well.

    Among several suitable shards, the one with the least state moves: it is served again soonest.
    """
    if not workers:
        return []
    census = Census(workers, tables, weights=weights)
    resting = {(t.computation, e.shard): e for t in tables for e in t.shards if _rests(e)}
    moves: list[Move] = []
    for node, giver, taker in _steps(census, tables, resting, leaving):
        if len(moves) == room:
            break
        entries = [e for (of, _), e in resting.items() if of == node and e.owner == giver]
        if not entries:
            # everything that could go is on its way; there is another plan when it has arrived
            break
        chosen = min(entries, key=lambda entry: (state_bytes.get(entry.shard, 0), entry.shard))
        del resting[node, chosen.shard]
        census.move(node, giver, taker)
        moves.append(Move(node, chosen.shard, taker))
    return moves


def _rests(entry: ShardEntry) -> bool:
    return bool(entry.owner) and not entry.next_owner and not entry.resharded


def _steps(
    census: Census,
    tables: Collection[RangeTable],
    resting: Mapping[tuple[NodeName, ShardName], ShardEntry],
    leaving: Collection[WorkerName],
) -> Iterator[tuple[NodeName, WorkerName, WorkerName]]:
    """(node, giver, taker) of helpful moves, one at a time; the caller records each one before it
    asks for the next."""
    for (node, _), entry in list(resting.items()):
        if entry.owner in leaving:
            yield node, entry.owner, census.least(node)
    nodes = [table.computation for table in tables]
    for node in nodes:
        while pair := census.uneven_pair(node):
            yield node, *pair
    while step := census.uneven_total(nodes):
        yield step
