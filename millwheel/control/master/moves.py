"""Moves, splits and merges, planned by the master or requested by users, until the stored table
contains them. Pure, as ``state.py`` is.

Nothing in here changes a table: a plan that is lost with its master costs nothing, and the next
master plans anew."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from millwheel.control.master.balance import Balancer, ClusterLoad
from millwheel.control.master.config import MasterConfig
from millwheel.control.master.effects import AnswerMove
from millwheel.control.master.events import LoadReported, MoveRequested, ReshardRequested
from millwheel.control.master.loads import Load, LoadBook
from millwheel.control.master.membership import Membership
from millwheel.control.master.speeds import Speeds
from millwheel.control.master.tables.holdings import Holdings
from millwheel.control.master.tables.planner import Move, NodeDemand, plan_moves
from millwheel.control.master.tables.resharding import Resharding, Split, fitted, refusal
from millwheel.core.model.names import NodeName, ShardName, WorkerName

_NEVER_US = -(1 << 60)
"""Long before any time that a clock shows."""
_GENTLE = 64
"""For each so many shards, one more may move at once after a loss: of thousands, one at a time
takes hours."""
_GENTLE_AFTER_US = 60_000_000
"""A worker that joins later than this after a loss counts as no replacement."""


@dataclass(slots=True)
class MovePace:
    """How many shards may begin to move for the sake of even numbers. ``at_once`` are on their way;
    none begins for ``recover_us`` after the loss of a worker, and for a minute after it they begin
    ``gently_us`` apart (0: as at other times). A shard on its way stands still, and where one
    worker opens several at once, they do for longer than the loss itself lasts."""

    at_once: int
    recover_us: int
    gently_us: int
    lost_us: int = _NEVER_US
    moved_us: int = _NEVER_US

    def recovers(self, now_us: int) -> bool:
        """Whether a worker has just been lost: its shards have work to catch up with."""
        return now_us - self.lost_us < self.recover_us

    def room(self, shards: int, on_their_way: int, leaving: bool, now_us: int) -> int:
        """How many of ``shards`` may begin to move. ``leaving``: a worker is to be emptied."""
        if leaving or not self.gently_us or now_us - self.lost_us > _GENTLE_AFTER_US:
            return self.at_once - on_their_way
        if on_their_way or now_us - self.moved_us < self.gently_us:
            return 0
        return min(1 + shards // _GENTLE, self.at_once)


class RequestedMoves:
    """The requested moves: at most one new owner per shard."""

    def __init__(self) -> None:
        self.targets: dict[tuple[NodeName, ShardName], WorkerName] = {}
        self._asked: list[MoveRequested] = []

    def plan(self, moves: Iterable[Move]) -> None:
        """Add planned moves."""
        self.targets.update(((move.node, move.shard), move.worker) for move in moves)

    def ask(self, request: MoveRequested) -> None:
        """Note a requested move, to be answered later."""
        self._asked.append(request)
        self.targets[request.node, request.shard] = request.worker

    def answers(self, holdings: Holdings, eligible: Collection[WorkerName]) -> Iterator[AnswerMove]:
        """Answer requests that are settled: the table contains the move, or it has become
        impossible."""
        waiting = []
        for request in self._asked:
            refusal = _refusal(request, holdings, eligible)
            if refusal is None:
                waiting.append(request)
            else:
                yield AnswerMove(ticket=request.ticket, refusal=refusal)
        self._asked = waiting

    def forget(self, holdings: Holdings, eligible: Collection[WorkerName]) -> None:
        """Drop requests that stored tables have fulfilled or made obsolete."""
        # By stored tables only: a write in progress may lose to that of another master, and a move
        # that was forgotten for it would never be made.
        for (node, shard), worker in list(self.targets.items()):
            entry = holdings.entry(node, shard)
            if (
                entry is None
                or not entry.owner
                or entry.next_owner
                or entry.owner == worker
                or worker not in eligible
            ):
                del self.targets[node, shard]


def _refusal(
    request: MoveRequested, holdings: Holdings, eligible: Collection[WorkerName]
) -> str | None:
    """ "" when the table contains the move, None when it still may, else the reason why it never
    will."""
    table = holdings.stored.get(request.node)
    if table is None:
        return (
            f"there is no node {request.node}; there are"
            f" {', '.join(sorted(holdings.stored)) or 'none yet'}"
        )
    entry = table.entry(request.shard)
    if entry is None:
        return (
            f"{request.node} has no shard {request.shard}; it has"
            f" {', '.join(e.shard for e in table.shards)}"
        )
    if request.worker in (entry.next_owner, entry.owner):
        return ""
    if request.worker not in eligible:
        return (
            f"{request.worker} is not a worker that can take shards; these can:"
            f" {', '.join(sorted(eligible)) or 'none'}"
        )
    if entry.next_owner or not entry.owner:
        return f"{request.shard} is on its way to {entry.next_owner or 'a new owner'} already"
    return None


class RequestedReshardings:
    """Splits and merges that no stored table contains yet."""

    def __init__(self, demands: Collection[NodeDemand]) -> None:
        self.requested: list[Resharding] = []
        self._asked: list[ReshardRequested] = []
        self._grains = {demand.name: demand.grain for demand in demands}
        self._fixed = {demand.name: demand.fixed for demand in demands if demand.fixed}

    def plan(self, reshardings: Iterable[Resharding]) -> None:
        """Add planned splits and merges. A split that would cut a slot is moved to the nearest edge
        of one."""
        self.requested += [
            self._fitted(each) for each in reshardings if each.node not in self._fixed
        ]

    def ask(self, request: ReshardRequested) -> None:
        """Note a requested split or merge, to be answered later."""
        self._asked.append(request)
        self.plan([request.resharding])

    def answers(self, holdings: Holdings) -> Iterator[AnswerMove]:
        """Answer requests that are settled: a table contains them, or they can never be made."""
        waiting = []
        for request in self._asked:
            carried = _carried(self._fitted(request.resharding), holdings)
            why = "" if carried else self._refusal(request.resharding, holdings)
            if why or carried:
                yield AnswerMove(ticket=request.ticket, refusal=why)
            else:
                waiting.append(request)
        self._asked = waiting

    def forget(self, holdings: Holdings) -> None:
        """Drop requests that stored tables contain, or that can never be fulfilled."""
        self.requested = [each for each in self.requested if not self._refusal(each, holdings)]

    def _fitted(self, requested: Resharding) -> Resharding:
        return fitted(requested, self._grains.get(requested.node, 1))

    def _refusal(self, requested: Resharding, holdings: Holdings) -> str:
        return refusal(requested, holdings.stored, self._fixed, self._grains.get(requested.node, 1))


def _carried(requested: Resharding, holdings: Holdings) -> bool:
    """Whether the stored table contains exactly this planned split or merge."""
    if isinstance(requested, Split):
        entry = holdings.entry(requested.node, requested.shard)
        return entry is not None and entry.split_at == requested.at
    lower, upper = (
        holdings.entry(requested.node, requested.lower),
        holdings.entry(requested.node, requested.upper),
    )
    return (
        lower is not None
        and upper is not None
        and bool(lower.merges_as)
        and lower.merges_as == upper.merges_as
    )


class Rebalancing:
    """Which shards should move, split or merge: requested by users, or planned from the measured
    loads, so that the workers that serve have their shares first of shards and then of load."""

    def __init__(self, config: MasterConfig) -> None:
        self.moves = RequestedMoves()
        self.reshardings = RequestedReshardings(config.nodes)
        self._config = config
        self._pace = MovePace(config.moves_at_once, config.recover_us, config.gently_us)
        self._book = LoadBook()
        self._balancer = None if config.balance is None else Balancer(config.balance)
        self._speeds = Speeds(config.speeds)
        self._memory: dict[WorkerName, float] = {}
        self._state_bytes: dict[ShardName, int] = {}
        self._least = {
            node.name: node.count(config.expected_workers)
            for node in config.nodes
            if not node.fixed
        }
        self._grains = {node.name: node.grain for node in config.nodes}
        self._balanced = False

    @property
    def loads(self) -> Mapping[ShardName, Load]:
        """The reported loads of shards."""
        return self._book.loads

    def slowness(self, worker: WorkerName) -> float:
        """How many times the time of the others a worker takes; 1: as quick."""
        return self._speeds.slowness(worker)

    def memory(self, worker: WorkerName) -> float:
        """The used share of a worker's memory; 0: unknown."""
        return self._memory.get(worker, 0.0)

    def weights(self, membership: Membership) -> dict[WorkerName, float]:
        """The weights that workers state, divided by how slow they are."""
        return {
            name: weight / self._speeds.slowness(name)
            for name, weight in membership.weights().items()
        }

    def full(self) -> set[WorkerName]:
        """The workers that are to get no more shards. Nobody is full without ``balance``: all
        shards have to be somewhere."""
        balance = self._config.balance
        return (
            set()
            if balance is None
            else {name for name, used in self._memory.items() if used >= balance.full}
        )

    def take(self, event: LoadReported, now_us: int) -> None:
        """Take the loads that a worker reports of its shards."""
        self._state_bytes.update((load.shard, load.state_bytes) for load in event.loads)
        self._memory[event.incarnation] = event.memory
        for load in event.loads:
            self._book.take(load, now_us)

    def lost(self, now_us: int) -> None:
        """A worker that owned shards is lost."""
        self._pace.lost_us = now_us

    def unsettle(self) -> None:
        """The set of workers that serve has changed."""
        self._balanced = False

    def forget(self, holdings: Holdings, serving: Collection[WorkerName]) -> None:
        """Drop the requests that stored tables have fulfilled or made obsolete."""
        self.moves.forget(holdings, serving)
        self.reshardings.forget(holdings)

    def answers(self, holdings: Holdings, serving: Collection[WorkerName]) -> Iterator[AnswerMove]:
        """Answer requests that are settled."""
        yield from self.moves.answers(holdings, serving)
        yield from self.reshardings.answers(holdings)

    def plan(
        self, holdings: Holdings, membership: Membership, serving: set[WorkerName], now_us: int
    ) -> list[NodeName]:
        """Plan a few moves, splits or merges, now that membership has settled and every shard is
        served. Returns the nodes that they are about."""
        if self._pace.recovers(now_us):
            return []
        self._measure(holdings, membership, now_us)
        if self._balanced:
            return self._plan_by_load(holdings, membership, serving, now_us)
        on_their_way = sum(facts.moving for facts in holdings.every()) + len(self.moves.targets)
        # A worker that lost its seat is emptied like one that leaves.
        leaving = membership.live().keys() - serving
        tables = [holdings.stored[demand.name] for demand in self._config.nodes]
        shards = sum(len(table.shards) for table in tables)
        room = self._pace.room(shards, on_their_way, bool(leaving), now_us)
        if room <= 0:
            return []
        planned = plan_moves(
            tables, serving, leaving, room, self._state_bytes, self.weights(membership)
        )
        full = self.full() if not leaving and serving - self.full() else ()
        moves = [move for move in planned if move.worker not in full]
        if moves:
            self._pace.moved_us = now_us
        self.moves.plan(moves)
        # A move that is requested later is not taken back: only a change of membership starts
        # this again.
        self._balanced = not moves and not on_their_way
        return [move.node for move in moves]

    def _measure(self, holdings: Holdings, membership: Membership, now_us: int) -> None:
        """Judge how slow workers are, by the loads of their shards."""
        live = membership.live()
        self._memory = {name: used for name, used in self._memory.items() if name in live}
        if self._balancer is not None:
            weights, tables = membership.weights(), holdings.stored.values()
            self._speeds.look(tables, live, self._book.loads, weights, now_us)

    def _plan_by_load(
        self, holdings: Holdings, membership: Membership, serving: set[WorkerName], now_us: int
    ) -> list[NodeName]:
        """Each worker has its share of shards: balance by measured load."""
        if self._balancer is None or self.moves.targets or self.reshardings.requested:
            return []
        if any(facts.changing for facts in holdings.every()):
            return []
        tables = [holdings.stored[demand.name] for demand in self._config.nodes]
        self._book.forget_others({entry.shard for table in tables for entry in table.shards})
        cluster = ClusterLoad(
            tables,
            serving,
            self._book.loads,
            self._least,
            self._grains,
            self.weights(membership),
            self._memory,
            membership.hosts,
            self._state_bytes,
            self._speeds.slow().keys(),
        )
        steps = list(self._balancer.look(cluster, now_us))
        for step in steps:
            if isinstance(step, Move):
                self.moves.plan([step])
            else:
                self.reshardings.plan([step])
        return [step.node for step in steps]
