"""Balance by measured load: which shard should move, be split, or be merged next. Pure.

Steps are taken one at a time, and only when they are worth their price, because a shard pauses
while it moves:

- while the busiest worker is busier than the idlest by less than ``gap``, nothing is done for
  balance;
- a move must leave both of them at least ``gain`` below the present load of the busiest, so the sum
  of the squares of all workers' loads falls with each move, and moves end. Both are shares of one
  core, or of the busiest worker's load if that is more than one core: measurement noise grows with
  the load;
- the weights of workers are the speeds of their machines: work that takes a tenth of a core on a
  worker of weight 1 takes a twentieth on one of weight 2. A move counts the shard's load as it will
  be at its taker, so moves end here, too: the greatest load of the two always falls. The weight of
  a worker that is found slow (:mod:`millwheel.control.master.speeds`) is divided by its slowness;
- a worker whose memory is ``full`` gets no shard of another host. From ``crowded`` on it hands over
  the one with the most state, to a worker of another host with less than ``roomy``; then nothing
  for ``relief_us``, because memory falls late. Its taker is far from ``crowded``, and a worker
  keeps its last shard, so this ends, too;
- a shard is split only when no move helps, it is busier than ``hot``, and an edge between sampled
  keys leaves at least a tenth of its work on either side: right before or after a key with much
  work. Neither a key nor a slot of slices is ever divided;
- neighbours are merged when both together do less than ``cold``, also on a worker of the least
  weight, and a node never gets fewer shards than it began with.

A child of a split does at least a tenth of ``hot``, which is more than ``cold``: it is not merged
while the load stays as it is. So under constant load the steps end, and nothing moves back and
forth. Because loads vary, a step is taken only after ``steady`` checks in a row have found one:
``certain`` checks if it relieves a worker that is slow or short of memory, ``idle`` checks if it is
a merge, which is never urgent. A pause of ``rest_us`` follows each step, and doubles whenever a
shard goes back to where it was.

A worker that has just been found slow is certainly slow, and all others wait for it. So up to
``at_once`` shards leave it at once, even in the pause after another step, unless a shard has gone
back recently: then the speed of a machine varies, and the pauses hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise

from millwheel.control.master.loads import Load
from millwheel.control.master.tables.planner import Move
from millwheel.control.master.tables.resharding import Merge, Resharding, Split
from millwheel.core.model.names import NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import KeyRange
from millwheel.errors import invariant

_SIDE = 0.1  # of the load: less on one side of a split is not worth one
_MOST_DOUBLINGS = 7  # of a pause of 5 s: about ten minutes
_MIN_SAMPLE = 32  # sampled keys; fewer do not show where to split

Step = Move | Resharding


@dataclass(frozen=True, slots=True)
class BalanceConfig:
    """Thresholds of balancing: shares of one core, shares of memory, and times in µs. The module's
    docstring explains them."""

    gap: float = 0.25
    gain: float = 0.08
    hot: float = 0.25
    cold: float = 0.02
    steady: int = 10
    certain: int = 3
    idle: int = 60
    at_once: int = 4
    look_us: int = 1_000_000
    rest_us: int = 5_000_000
    remember_us: int = 120_000_000
    full: float = 0.9
    crowded: float = 0.95
    roomy: float = 0.8
    relief_us: int = 30_000_000

    def __post_init__(self) -> None:
        invariant(
            0 < 2 * self.gain <= self.gap,
            f"gain is {self.gain}, must be positive and at most half of gap",
        )
        invariant(
            self.cold < _SIDE * self.hot,
            f"cold is {self.cold}, must be below a tenth of hot ({self.hot})",
        )
        invariant(
            0 < self.certain <= self.steady <= self.idle,
            f"certain, steady, idle are {self.certain}, {self.steady}, {self.idle}; they must be"
            " positive and rise",
        )
        invariant(self.at_once > 0, f"at_once is {self.at_once}, must be positive")
        rises = 0 < self.roomy < self.full < self.crowded
        invariant(
            rises,
            f"roomy, full, crowded are {self.roomy}, {self.full}, {self.crowded}; they must rise",
        )


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """The input of a balancing decision. ``least`` maps each node whose shards can be split and
    merged to its minimum number of shards. The edges of a node's ranges are multiples of its
    ``grains`` (default: 1). ``weights``: how fast workers are, relative to one of weight 1
    (default: 1). ``slow``: the workers found slow; their weights make up for it. ``memory``: the
    share of it that workers use, where it is measured; ``hosts``: where they run. ``state_bytes``:
    about how much state shards have."""

    tables: Sequence[RangeTable]
    workers: Collection[WorkerName]
    loads: Mapping[ShardName, Load]
    least: Mapping[NodeName, int]
    grains: Mapping[NodeName, int] = field(default_factory=dict)
    weights: Mapping[WorkerName, float] = field(default_factory=dict)
    memory: Mapping[WorkerName, float] = field(default_factory=dict)
    hosts: Mapping[WorkerName, str] = field(default_factory=dict)
    state_bytes: Mapping[ShardName, int] = field(default_factory=dict)
    slow: Set[WorkerName] = frozenset()

    @property
    def measured(self) -> bool:
        """Whether all shards have reported their loads."""
        return all(entry.shard in self.loads for table in self.tables for entry in table.shards)

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
        return sum(
            self.busy(e.shard) for table in self.tables for e in table.shards if e.owner == worker
        )

    def after(self, move: Move) -> ClusterLoad:
        """The load as it will be once a move is done."""
        tables, loads = list[RangeTable](), dict(self.loads)
        for table in self.tables:
            shards = list(table.shards)
            for number, entry in enumerate(shards):
                if (table.computation, entry.shard) == (move.node, move.shard):
                    faster = self.weight(move.worker) / self.weight(entry.owner)
                    loads[entry.shard] = replace(
                        loads[entry.shard], busy=self.busy(entry.shard) / faster
                    )
                    shards[number] = replace(entry, owner=move.worker)
            tables.append(replace(table, shards=tuple(shards)))
        return replace(self, tables=tables, loads=loads)


def relief(cluster: ClusterLoad, config: BalanceConfig) -> Move | None:
    """The move of the greatest state away from the worker with the least memory left; None when all
    have enough, or no worker has room."""
    for giver in sorted(cluster.workers, key=lambda worker: (-cluster.used(worker), worker)):
        if cluster.used(giver) < config.crowded:
            return None
        roomy = [
            w
            for w in cluster.workers
            if 0 < cluster.used(w) < config.roomy and cluster.apart(giver, w)
        ]
        served = [
            (cluster.state_bytes.get(e.shard, 0), e.shard, node)
            for node, e in cluster.served(giver)
        ]
        if roomy and len(served) > 1:
            _, shard, node = max(served)
            return Move(node, shard, min(roomy, key=lambda worker: (cluster.used(worker), worker)))
    return None


def relieved(
    cluster: ClusterLoad, config: BalanceConfig, slow: Collection[WorkerName]
) -> list[Move]:
    """The moves away from workers that have just been found slow, all at once: each as if those
    before it were done."""
    moves = list[Move]()
    for giver in sorted(slow):
        while len(moves) < config.at_once:
            move = _best_move(cluster, config, giver)
            if move is None:
                break
            moves.append(move)
            cluster = cluster.after(move)
    return moves


def next_step(cluster: ClusterLoad, config: BalanceConfig) -> Step | None:
    """The next step for the load's sake; None when no step helps or some load is unknown."""
    if not cluster.workers or not cluster.measured:
        return None
    return _evened(cluster, config) or _merged(cluster, config)


def _evened(cluster: ClusterLoad, config: BalanceConfig) -> Step | None:
    high, busiest = max((cluster.burden(worker), worker) for worker in cluster.workers)
    others = _eligible(cluster, config, busiest)
    if not others or high - others[0][0] < config.gap * max(1.0, high):
        return None
    move = _best_move(cluster, config, busiest)
    if move is not None:
        return move
    served = [(cluster.busy(entry.shard), node, entry) for node, entry in cluster.served(busiest)]
    for busy, node, entry in sorted(served, key=lambda one: (-one[0], one[2].shard)):
        if busy < config.hot or node not in cluster.least:
            continue
        at = best_edge(entry.range, cluster.loads[entry.shard].sample, cluster.grains.get(node, 1))
        if at is not None:
            return Split(node, entry.shard, at)
    return None


def _eligible(
    cluster: ClusterLoad, config: BalanceConfig, giver: WorkerName
) -> list[tuple[float, WorkerName]]:
    """The workers that may take a shard of ``giver``, with their loads, the idlest first."""
    return sorted(
        (cluster.burden(worker), worker)
        for worker in cluster.workers
        if worker != giver
        and (cluster.used(worker) < config.full or not cluster.apart(worker, giver))
    )


def _best_move(cluster: ClusterLoad, config: BalanceConfig, giver: WorkerName) -> Move | None:
    """The move that makes a worker and a taker most even; None where no move is worth it."""
    high, others = cluster.burden(giver), _eligible(cluster, config, giver)
    faster = [cluster.weight(worker) / cluster.weight(giver) for _, worker in others]
    outcomes = [
        (max(high - busy, low + busy / faster[taker]), entry.shard, node, taker)
        for node, entry in cluster.served(giver)
        for busy in [cluster.busy(entry.shard)]
        # where all weights are equal, the idlest is the best
        for taker, (low, _) in enumerate(others)
    ]
    if not outcomes or min(outcomes)[0] > high - config.gain * max(1.0, high):
        return None
    _, shard, node, taker = min(outcomes)
    return Move(node, shard, others[taker][1])


def best_edge(keys: KeyRange, sample: Sequence[int], grain: int = 1) -> int | None:
    """The lower edge of the upper half that divides the work most evenly; None when no edge leaves
    a tenth on either side. Among equally good edges, the one beside the key (or slot: ``grain``
    hashes) with more work."""
    points = sorted(point for point in sample if point in keys)
    if len(points) < _MIN_SAMPLE:
        return None
    often = Counter(point // grain * grain for point in points)
    edges = {edge for first in often for edge in (first, first + grain) if keys.lo < edge < keys.hi}
    ranked = ((_evenness(edge, points), often[edge] + often[edge - grain], edge) for edge in edges)
    best, _, at = max(ranked, default=(0, 0, 0))
    return at if best >= _SIDE * len(points) else None


def _evenness(edge: int, points: Sequence[int]) -> int:
    below = bisect_left(points, edge)
    return min(below, len(points) - below)


def _merged(cluster: ClusterLoad, config: BalanceConfig) -> Merge | None:
    """The idlest pair of neighbours whose joint load is below ``cold``, wherever they are."""
    least = min(map(cluster.weight, cluster.workers))
    resting = {entry.shard for worker in cluster.workers for _, entry in cluster.served(worker)}
    pairs: list[tuple[float, Merge]] = []
    for table in cluster.tables:
        if len(table.shards) <= cluster.least.get(table.computation, len(table.shards)):
            continue
        for lower, upper in pairwise(sorted(table.shards, key=lambda entry: entry.range.lo)):
            both = (
                sum(cluster.busy(one.shard) * cluster.weight(one.owner) for one in (lower, upper))
                / least
            )
            if both <= config.cold and lower.shard in resting and upper.shard in resting:
                pairs.append((both, Merge(table.computation, lower.shard, upper.shard)))
    return min(pairs, key=lambda one: (one[0], one[1].lower))[1] if pairs else None


@dataclass(slots=True)
class Returns:
    """How often shards have gone back to a worker that they had left. Moves cannot always
    distinguish expensive records from a slow worker, and a machine may be slow every now and then:
    each step would then be followed by its opposite. So every return doubles the pause. All returns
    are forgotten once two pauses and ``remember_us`` are over and no step is needed."""

    left: set[tuple[ShardName, WorkerName]] = field(default_factory=set)
    count: int = 0
    keep_until_us: int = 0

    def after(self, step: Step, cluster: ClusterLoad) -> int:
        """How many times ``rest_us`` the pause after this step lasts."""
        if isinstance(step, Move):
            self.count += (step.shard, step.worker) in self.left
            self.left |= {(step.shard, owner) for owner in _owners(step, cluster)}
        return int(2 ** min(self.count, _MOST_DOUBLINGS))

    def forget(self, now_us: int) -> None:
        """Forget the returns after a quiet time; no step is needed."""
        if now_us >= self.keep_until_us:
            self.left.clear()
            self.count = 0


def _owners(move: Move, cluster: ClusterLoad) -> list[WorkerName]:
    """The owner of the shard that moves; empty if no table has the shard."""
    return [e.owner for table in cluster.tables for e in table.shards if e.shard == move.shard]


@dataclass(slots=True)
class Balancer:
    """Takes a step once several checks in a row have found one, and pauses after it."""

    config: BalanceConfig
    _repeats: int = field(default=0)
    _next_us: int = field(default=0)
    _relief_us: int = field(default=0)
    _slow: frozenset[WorkerName] = field(default=frozenset())
    _split: bool = field(default=False)
    _returns: Returns = field(default_factory=Returns)

    def look(self, cluster: ClusterLoad, now_us: int) -> Sequence[Step]:
        """The steps to take now, if any: several only away from workers that have just been found
        slow. Call it as often as you like."""
        if moves := self._away_from_slow(cluster, now_us):
            return moves
        if now_us < self._next_us:
            return ()
        self._next_us = now_us + self.config.look_us
        relieving = relief(cluster, self.config) if now_us >= self._relief_us else None
        step = relieving or next_step(cluster, self.config)
        self._repeats = self._repeats + 1 if step is not None else 0
        if step is None:
            self._returns.forget(now_us)
        if step is None or self._repeats < self._looks(step, cluster, relieving is not None):
            return ()
        if relieving is not None:
            self._relief_us = now_us + self.config.relief_us
        return self._taken([step], cluster, now_us)

    def _away_from_slow(self, cluster: ClusterLoad, now_us: int) -> Sequence[Step]:
        if not cluster.measured or (now_us < self._next_us and self._returns.count):
            return ()
        newly_slow, self._slow = frozenset(cluster.slow) - self._slow, frozenset(cluster.slow)
        moves = relieved(cluster, self.config, newly_slow & set(cluster.workers))
        return self._taken(moves, cluster, now_us) if moves else ()

    def _looks(self, step: Step, cluster: ClusterLoad, relieving: bool) -> int:
        """How many checks in a row must find a step."""
        if isinstance(step, Merge):
            return self.config.idle
        sure = isinstance(step, Move) and not cluster.slow.isdisjoint(_owners(step, cluster))
        # a split is for the move that follows it
        sure = sure or (self._split and isinstance(step, Move))
        return self.config.certain if relieving or sure else self.config.steady

    def _taken(self, steps: Sequence[Step], cluster: ClusterLoad, now_us: int) -> Sequence[Step]:
        pause_us = self.config.rest_us * max(self._returns.after(step, cluster) for step in steps)
        self._repeats, self._next_us = 0, now_us + pause_us
        self._split = isinstance(steps[0], Split)
        self._returns.keep_until_us = now_us + max(2 * pause_us, self.config.remember_us)
        return steps
