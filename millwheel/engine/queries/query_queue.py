"""Queries on their way between a server and the loop that answers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millwheel.core.model.names import NOBODY, WorkerName
from millwheel.engine.queries.model import Answer, Query, QueryError


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The key belongs to the worker ``owner``. ``for_now``: that worker is still taking the shard
    over, and can answer this question already. ``standby`` is the worker that follows the shard, or
    ""."""

    owner: WorkerName
    for_now: bool = False
    standby: WorkerName = NOBODY


Found = Answer | QueryError | Elsewhere
"""The outcome of a query."""


@dataclass(frozen=True, slots=True)
class AskedQueries:
    """Queries that arrived together. ``reply`` is called with their outcomes, in order, once the
    state that they need is durable. Any thread may call it."""

    queries: Sequence[Query]
    reply: Callable[[Sequence[Found]], None]
