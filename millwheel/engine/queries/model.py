"""A question to a running pipeline, its answer, error or redirection, and questions on their way
between a server and the loop that answers them.

All times are µs UTC. Everything here is plain data: it crosses threads and connections. Questions
and answers are msgspec structs, because some are made for every name that is asked: a frozen
dataclass takes five times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import msgspec

from millwheel.core.model.keys import Key
from millwheel.core.model.names import NO_WORKER, WorkerName


class QueryMode(Enum):
    """The slices that a window ``[T - H, T)`` selects where its ends are not on the edges of
    slices."""

    COVERING = "covering"
    """Every slice that overlaps the window, as a whole."""
    EXACT = "exact"
    """Only windows whose ends are on the edges of slices; all others are refused."""
    INSIDE = "inside"
    """Only the slices that lie completely inside the window."""
    OPEN = "open"
    """For an aggregation with windows: all open windows of a key."""


Mode = QueryMode
"""The short name in the modules about queries."""


class Consistency(Enum):
    """The state that a question reads."""

    DURABLE = "durable"
    """State that is durably committed."""
    LATEST = "latest"
    """State that is applied, perhaps not yet committed; a crash may undo it."""
    STANDBY = "standby"
    """State of a standby; it may lag behind the owner."""
    SNAPSHOT = "snapshot"
    """State of a standby or of the newest snapshot; answers are marked ``standby``."""


class Query(msgspec.Struct, frozen=True, gc=False):
    """A question about one key.

    ``indicator`` is the name of a computation, or ``COMPUTATION.NAME`` for one value of it: an
    aggregate, or a state of a callback. ``window_us`` is None for values without a window (state,
    window results). ``until_us`` is the end of the window (exclusive); None means now. The server
    sets it to the wall clock before it asks an operator."""

    indicator: str
    key: Key
    window_us: int | None = None
    until_us: int | None = None
    mode: Mode = Mode.COVERING
    consistency: Consistency = Consistency.DURABLE

    @property
    def computation(self) -> str:
        """The computation part of the indicator."""
        return _parts(self.indicator)[0]

    @property
    def name(self) -> str:
        """The value part of the indicator; "" for all values."""
        return _parts(self.indicator)[1]

    def asked_at(self, now_us: int) -> Query:
        """The same question; a window without an end ends now."""
        if self.until_us is not None or self.window_us is None:
            return self
        return Query(self.indicator, self.key, self.window_us, now_us, self.mode, self.consistency)

    def chosen(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """The requested ones of ``values``. Raises QueryError when none has that name."""
        name = _parts(self.indicator)[1]
        if not name:
            return values
        if name not in values:
            there = ", ".join(sorted(values)) or "nothing"
            raise QueryError(
                "unknown_indicator", f"{self.computation} has no {name!r}; it has {there}"
            )
        return {name: values[name]}


@lru_cache(1_000)
def _parts(indicator: str) -> tuple[str, str]:
    computation, _, name = indicator.partition(".")
    return computation, name


class Finding(msgspec.Struct, frozen=True, gc=False):
    """An operator's answer to a question: ``values`` by name, and the span of event time that they
    cover ([start, end); both None where the values have none). ``complete``: the watermark has
    passed the end, and nothing of the span has been forgotten."""

    values: Mapping[str, object]
    covered_start_us: int | None = None
    covered_end_us: int | None = None
    complete: bool = True


class QueryAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer: ``values`` of the span [``covered_start_us``, ``covered_end_us``) as of ``commit``
    of ``shard``, owned under ``token``, whose watermark was ``watermark_us``. See :class:`Finding`.
    ``lag_us``: how long ago a standby had last applied all commits of its owner that were certain
    to count; None if unknown."""

    values: Mapping[str, object]
    covered_start_us: int | None
    covered_end_us: int | None
    watermark_us: int
    complete: bool
    shard: str
    token: int
    commit: int
    consistency: Consistency = Consistency.DURABLE
    lag_us: int | None = None


Answer = QueryAnswer
"""The short name in the modules about queries."""

CODES = (
    "unknown_indicator",
    "wrong_key",
    "bad_window",
    "not_asked",
    "beyond_keep",
    "bad_value",
    "bad_formula",
    "too_much",
    "not_here",
    "unavailable",
)
"""The kinds of errors, as codes for programs. In this order: unknown name; key of another type;
window that is negative, missing, not on edges or not for this computation; computation without
queries; window longer than the kept time; formula whose values do not fit; text that is not a
formula; question over a limit; key of another worker; no worker can answer at the moment."""


class QueryError(Exception):
    """A question without an answer: ``code`` is one of :data:`CODES`, ``sentence`` is for
    people."""

    def __init__(self, code: str, sentence: str, failed: bool = False) -> None:
        """``failed``: the fault is the worker's, not the question's."""
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.failed = failed


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The key belongs to the worker ``owner``. ``for_now``: that worker is still taking the shard
    over, and can answer this question already. ``standby`` is the worker that follows the shard, or
    ""."""

    owner: WorkerName
    for_now: bool = False
    standby: WorkerName = NO_WORKER


Found = Answer | QueryError | Elsewhere
"""The outcome of a query."""


@dataclass(frozen=True, slots=True)
class AskedQueries:
    """Queries that arrived together. ``reply`` is called with their outcomes, in order, once the
    state that they need is durable. Any thread may call it."""

    queries: Sequence[Query]
    reply: Callable[[Sequence[Found]], None]
