"""Wanted moves, planned or asked for, until the stored table carries them. Pure, as ``state.py`` is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from millwheel.master.effects import AnswerMove
from millwheel.master.events import MoveRequested
from millwheel.master.holdings import Holdings
from millwheel.master.planner import Move


class WantedMoves:
    """At most one wanted taker per shard."""

    def __init__(self) -> None:
        self.takers: dict[tuple[str, str], str] = {}
        self._asked: list[MoveRequested] = []

    def plan(self, moves: Iterable[Move]) -> None:
        """Moves of our own."""
        self.takers.update(((move.node, move.shard), move.worker) for move in moves)

    def ask(self, request: MoveRequested) -> None:
        """A move that somebody waits for an answer about."""
        self._asked.append(request)
        self.takers[request.node, request.shard] = request.worker

    def answers(self, holdings: Holdings, takers: Collection[str]) -> Iterator[AnswerMove]:
        """Answer what is settled: the table carries the move, or it cannot be made any more."""
        waiting = []
        for request in self._asked:
            refusal = _refusal(request, holdings, takers)
            if refusal is None:
                waiting.append(request)
            else:
                yield AnswerMove(ticket=request.ticket, refusal=refusal)
        self._asked = waiting

    def forget(self, holdings: Holdings, takers: Collection[str]) -> None:
        """Drop wishes that stored tables have fulfilled or overtaken."""
        for (node, shard), worker in list(self.takers.items()):
            entry = holdings.entry(node, shard)
            if entry is None or not entry.owner or entry.next_owner or entry.owner == worker or worker not in takers:
                del self.takers[node, shard]


def _refusal(request: MoveRequested, holdings: Holdings, takers: Collection[str]) -> str | None:
    """ "" when the table carries the move, None when it may still come to carry it, else why it never will."""
    table = holdings.stored.get(request.node)
    if table is None:
        return f"there is no node {request.node}; there are {', '.join(sorted(holdings.stored)) or 'none yet'}"
    entry = table.entry(request.shard)
    if entry is None:
        return f"{request.node} has no shard {request.shard}; it has {', '.join(e.shard for e in table.shards)}"
    if request.worker in (entry.next_owner, entry.owner):
        return ""
    if request.worker not in takers:
        return f"{request.worker} is no worker that can take shards; these can: {', '.join(sorted(takers)) or 'none'}"
    if entry.next_owner or not entry.owner:
        return f"{request.shard} is on its way to {entry.next_owner or 'a new owner'} already"
    return None
