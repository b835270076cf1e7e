"""Balance by measured load: which shard should move, be split, or be merged next. Pure.

Steps are taken one at a time, and only when they are worth their price, because a shard pauses while it moves:

- while the busiest worker is busier than the idlest by less than ``gap``, nothing is done for balance;
- a move must leave both of them at least ``gain`` below what the busiest has now, so the sum of the squares of all
  workers' loads falls with each move, and moves end. Both are shares of one core, or of the busiest worker's load if
  that is more than one core: measurement noise grows with the load;
- the weights of workers say how fast their machines are: what takes a worker of weight 1 a tenth of a core takes one of
  weight 2 a twentieth. A move counts the shard's load as it will be at its taker, so moves end here, too: the greatest
  load of the two always falls. The weight of a worker that is found slow (:mod:`millwheel.master.speeds`) is divided by
  its slowness;
- a worker whose memory is ``full`` gets no shard of another host. From ``crowded`` on it hands over the one with the
  most state, to a worker of another host with less than ``roomy``; then nothing for ``relief_us``, because memory falls
  late. Whoever took it is far from ``crowded``, and a worker keeps its last shard, so this ends, too;
- a shard is split only when no move helps, it is busier than ``hot``, and an edge between sampled keys leaves at least
  a tenth of its work on either side: right before or after a key with much work. Neither a key nor a slot of slices
  is ever divided;
- neighbours are merged when both together do less than ``cold``, also on a worker of the least weight, and a node never
  gets fewer shards than it began with.

A child of a split does at least a tenth of ``hot``, which is more than ``cold``: it is not merged while the load stays
as it is. So under constant load the steps end, and nothing moves back and forth. Because loads vary, a step is taken
only after ``steady`` checks in a row have found one. A pause of ``rest_us`` follows each step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from millwheel.core.model.names import NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import KeyRange
from millwheel.errors import invariant
from millwheel.master.loads import Load
from millwheel.master.tables.planner import Move
from millwheel.master.tables.resharding import Merge, Resharding, Split

_SIDE = 0.1  # of the load: less on one side of a split is not worth one
_MIN_SAMPLE = 32  # sampled keys; fewer do not show where to split

Step = Move | Resharding


@dataclass(frozen=True, slots=True)
class BalanceConfig:
    """Thresholds of balancing: shares of one core, shares of memory, and times in µs. The module's docstring explains
    them."""

    gap: float = 0.25
    gain: float = 0.08
    hot: float = 0.25
    cold: float = 0.02
    steady: int = 3
    look_us: int = 1_000_000
    rest_us: int = 5_000_000
    full: float = 0.9
    crowded: float = 0.95
    roomy: float = 0.8
    relief_us: int = 30_000_000

    def __post_init__(self) -> None:
        invariant(0 < 2 * self.gain <= self.gap, f"gain is {self.gain}, must be positive and at most half of gap")
        invariant(self.cold < _SIDE * self.hot, f"cold is {self.cold}, must be below a tenth of hot ({self.hot})")
        invariant(self.steady > 0, f"steady is {self.steady}, must be positive")
        rises = 0 < self.roomy < self.full < self.crowded
        invariant(rises, f"roomy, full, crowded are {self.roomy}, {self.full}, {self.crowded}; they must rise")


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """The input of a balancing decision. ``least`` maps each node whose shards can be split and merged to its minimum
    number of shards. The edges of a node's ranges are multiples of its ``grains`` (default: 1). ``weights``: how fast
    workers are, relative to one of weight 1 (default: 1). ``memory``: which share of it they use, where it is known;
    ``hosts``: where they run. ``state_bytes``: about how much state shards have."""

    tables: Sequence[RangeTable]
    workers: Collection[WorkerName]
    loads: Mapping[ShardName, Load]
    least: Mapping[NodeName, int]
    grains: Mapping[NodeName, int] = field(default_factory=dict)
    weights: Mapping[WorkerName, float] = field(default_factory=dict)
    memory: Mapping[WorkerName, float] = field(default_factory=dict)
    hosts: Mapping[WorkerName, str] = field(default_factory=dict)
    state_bytes: Mapping[ShardName, int] = field(default_factory=dict)

    def weight(self, worker: WorkerName) -> float:
        """How fast a worker is, relative to one of weight 1."""
        return self.weights.get(worker, 1)

    def used(self, worker: WorkerName) -> float:
        """The used share of a worker's memory; 0 while it is unknown."""
        return self.memory.get(worker, 0.0)

    def apart(self, one: WorkerName, other: WorkerName) -> bool:
        """Whether two workers run on different hosts, and so have different memory."""
        return self.hosts.get(one, one) != self.hosts.get(other, other)

    def served(self, worker: WorkerName) -> Iterator[tuple[NodeName, ShardEntry]]:
        """The shards of a worker that are not being moved."""
        for table in self.tables:
            for entry in table.shards:
                if entry.owner == worker and not entry.next_owner and not entry.resharded:
                    yield table.computation, entry

    def busy(self, shard: ShardName) -> float:
        """The load of one shard."""
        return self.loads[shard].busy

    def burden(self, worker: WorkerName) -> float:
        """The load of all shards of one worker."""
        return sum(self.busy(e.shard) for table in self.tables for e in table.shards if e.owner == worker)


def relief(cluster: ClusterLoad, config: BalanceConfig) -> Move | None:
    """The move of the greatest state away from the worker with the least memory left; None when all have enough, or
    nobody has room."""
    for giver in sorted(cluster.workers, key=lambda worker: (-cluster.used(worker), worker)):
        if cluster.used(giver) < config.crowded:
            return None
        roomy = [w for w in cluster.workers if 0 < cluster.used(w) < config.roomy and cluster.apart(giver, w)]
        served = [(cluster.state_bytes.get(e.shard, 0), e.shard, node) for node, e in cluster.served(giver)]
        if roomy and len(served) > 1:
            _, shard, node = max(served)
            return Move(node, shard, min(roomy, key=lambda worker: (cluster.used(worker), worker)))
    return None


def next_step(cluster: ClusterLoad, config: BalanceConfig) -> Step | None:
    """The next step for the load's sake; None when no step helps or some load is unknown."""
    entries = [entry for table in cluster.tables for entry in table.shards]
    if not cluster.workers or any(entry.shard not in cluster.loads for entry in entries):
        return None
    return _evened(cluster, config) or _merged(cluster, config)


def _evened(cluster: ClusterLoad, config: BalanceConfig) -> Step | None:
    *others, (high, busiest) = sorted((cluster.burden(worker), worker) for worker in cluster.workers)
    others = [one for one in others if cluster.used(one[1]) < config.full or not cluster.apart(one[1], busiest)]
    scale = max(1.0, high)
    if not others or high - others[0][0] < config.gap * scale:
        return None
    served = [(cluster.busy(entry.shard), node, entry) for node, entry in cluster.served(busiest)]
    faster = [cluster.weight(worker) / cluster.weight(busiest) for _, worker in others]
    outcomes = [
        (max(high - busy, low + busy / faster[taker]), entry.shard, node, taker)
        for busy, node, entry in served
        for taker, (low, _) in enumerate(others)  # where all weights are equal, the idlest is the best
    ]
    if outcomes and min(outcomes)[0] <= high - config.gain * scale:
        _, shard, node, taker = min(outcomes)
        return Move(node, shard, others[taker][1])
    for busy, node, entry in sorted(served, key=lambda one: (-one[0], one[2].shard)):
        if busy < config.hot or node not in cluster.least:
            continue
        at = best_edge(entry.range, cluster.loads[entry.shard].sample, cluster.grains.get(node, 1))
        if at is not None:
            return Split(node, entry.shard, at)
    return None


def best_edge(keys: KeyRange, sample: Sequence[int], grain: int = 1) -> int | None:
    """The lower edge of the upper half that divides the work most evenly; None when no edge leaves a tenth on either
    side. Among equally good edges, the one beside the key (or slot: ``grain`` hashes) with more work."""
    mine = sorted(point for point in sample if point in keys)
    if len(mine) < _MIN_SAMPLE:
        return None
    often = Counter(point // grain * grain for point in mine)
    edges = {edge for first in often for edge in (first, first + grain) if keys.lo < edge < keys.hi}
    ranked = ((_evenness(edge, mine), often[edge] + often[edge - grain], edge) for edge in edges)
    best, _, at = max(ranked, default=(0, 0, 0))
    return at if best >= _SIDE * len(mine) else None


def _evenness(edge: int, mine: Sequence[int]) -> int:
    below = bisect_left(mine, edge)
    return min(below, len(mine) - below)


def _merged(cluster: ClusterLoad, config: BalanceConfig) -> Merge | None:
    """The idlest pair of neighbours whose joint load is below ``cold``, wherever they are."""
    least = min(map(cluster.weight, cluster.workers))
    resting = {entry.shard for worker in cluster.workers for _, entry in cluster.served(worker)}
    found: list[tuple[float, Merge]] = []
    for table in cluster.tables:
        if len(table.shards) <= cluster.least.get(table.computation, len(table.shards)):
            continue
        for lower, upper in pairwise(sorted(table.shards, key=lambda entry: entry.range.lo)):
            both = sum(cluster.busy(one.shard) * cluster.weight(one.owner) for one in (lower, upper)) / least
            if both <= config.cold and lower.shard in resting and upper.shard in resting:
                found.append((both, Merge(table.computation, lower.shard, upper.shard)))
    return min(found, key=lambda one: (one[0], one[1].lower))[1] if found else None


@dataclass(slots=True)
class Balancer:
    """Takes a step once several checks in a row have found one, and pauses after it."""

    config: BalanceConfig
    _wanted: int = field(default=0)
    _next_us: int = field(default=0)
    _relief_us: int = field(default=0)

    def look(self, cluster: ClusterLoad, now_us: int) -> Step | None:
        """The step to take now, if any. Call it as often as you like."""
        if now_us < self._next_us:
            return None
        self._next_us = now_us + self.config.look_us
        relieving = relief(cluster, self.config) if now_us >= self._relief_us else None
        step = relieving or next_step(cluster, self.config)
        self._wanted = self._wanted + 1 if step is not None else 0
        if self._wanted < self.config.steady:
            return None
        if relieving is not None:
            self._relief_us = now_us + self.config.relief_us
        self._wanted, self._next_us = 0, now_us + self.config.rest_us
        return step
