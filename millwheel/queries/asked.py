"""Queries on their way between a server and the loop that answers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millwheel.core.model.names import NOBODY, WorkerName
from millwheel.queries.model import Answer, Query, QueryError


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another worker has the key. ``for_now``: it takes the shard over, and has it for this question already.
    ``standby`` follows it; "" when nobody does."""

    owner: WorkerName
    for_now: bool = False
    standby: WorkerName = NOBODY


Found = Answer | QueryError | Elsewhere
"""What becomes of a query."""


@dataclass(frozen=True, slots=True)
class AskedQueries:
    """Queries that came together. ``reply`` gets what became of each, in order, once all that is durable is; any
    thread may call it."""

    queries: Sequence[Query]
    reply: Callable[[Sequence[Found]], None]
