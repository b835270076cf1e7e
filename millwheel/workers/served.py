"""A shard among those that a worker serves, and the two kinds of answers that need no wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from millwheel.core.times import MIN_TIME
from millwheel.workers.shard import Shard


@dataclass(frozen=True, slots=True)
class LocalRoute:
    """A delivery from a shard of this worker: its ack needs no wire."""

    sender: str


@dataclass(slots=True)
class InjectRoute:
    """Answers a client once what it injected is durable; the operator fills in the figures."""

    answer: Callable[[bool, int, int, int], None]
    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0

    def __call__(self) -> None:
        self.answer(False, self.accepted, self.duplicates, self.rejected)


@dataclass(slots=True)
class Served:
    """A shard in this worker. It is ``live`` when it may act; ``leaving`` when a move is planned."""

    shard: Shard
    node: str
    token_known: bool = False
    live: bool = False
    leaving: bool = False
    released: bool = False
    reported: tuple[int, ...] = (MIN_TIME, -1)
    records: int = 0
    stalled: dict[tuple[str, str], int] = field(default_factory=dict)
