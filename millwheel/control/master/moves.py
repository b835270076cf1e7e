"""Moves, splits and merges, planned by the master or requested by users, until the stored table
contains them. Pure, as ``state.py`` is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from millwheel.control.master.effects import AnswerMove
from millwheel.control.master.events import MoveRequested, ReshardRequested
from millwheel.control.master.tables.holdings import Holdings
from millwheel.control.master.tables.planner import Move, NodeDemand
from millwheel.control.master.tables.resharding import Resharding, Split, fitted, refusal
from millwheel.core.model.names import NodeName, ShardName, WorkerName

_NEVER_US = -(1 << 60)
"""Long before any time that a clock shows."""
_GENTLE = 64
"""Shards for each that may move at once after a loss: with thousands, one at a time takes hours."""
_GENTLE_AFTER_US = 60_000_000
"""A worker that joins later than this after a loss replaces nobody."""


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
        """Whether a worker has just been lost: what it had, has work to catch up with."""
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
        self.takers: dict[tuple[NodeName, ShardName], WorkerName] = {}
        self._asked: list[MoveRequested] = []

    def plan(self, moves: Iterable[Move]) -> None:
        """Add planned moves."""
        self.takers.update(((move.node, move.shard), move.worker) for move in moves)

    def ask(self, request: MoveRequested) -> None:
        """Note a requested move, to be answered later."""
        self._asked.append(request)
        self.takers[request.node, request.shard] = request.worker

    def answers(self, holdings: Holdings, takers: Collection[WorkerName]) -> Iterator[AnswerMove]:
        """Answer requests that are settled: the table contains the move, or it has become
        impossible."""
        waiting = []
        for request in self._asked:
            refusal = _refusal(request, holdings, takers)
            if refusal is None:
                waiting.append(request)
            else:
                yield AnswerMove(ticket=request.ticket, refusal=refusal)
        self._asked = waiting

    def forget(self, holdings: Holdings, takers: Collection[WorkerName]) -> None:
        """Drop requests that stored tables have fulfilled or made obsolete."""
        for (node, shard), worker in list(self.takers.items()):
            entry = holdings.entry(node, shard)
            if (
                entry is None
                or not entry.owner
                or entry.next_owner
                or entry.owner == worker
                or worker not in takers
            ):
                del self.takers[node, shard]


def _refusal(
    request: MoveRequested, holdings: Holdings, takers: Collection[WorkerName]
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
    if request.worker not in takers:
        return (
            f"{request.worker} is no worker that can take shards; these can:"
            f" {', '.join(sorted(takers)) or 'none'}"
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
