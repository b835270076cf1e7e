"""A question to a running pipeline, its answer, and the error that is one.

All times are µs UTC. Everything here is plain data: it crosses threads and connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from millwheel.core.model.keys import Key


class QueryMode(Enum):
    """Which slices a window ``[T - H, T)`` takes, where it does not end on their edges."""

    COVERING = "covering"
    """Every slice that it touches, whole."""
    EXACT = "exact"
    """Only a window on the edges of slices; any other is refused."""
    INSIDE = "inside"
    """Only the slices that lie in it whole."""
    OPEN = "open"
    """Of an aggregation with windows: all of a key's that are open."""


Mode = QueryMode
"""What everything about queries calls it."""


class Consistency(Enum):
    """Which state is asked."""

    DURABLE = "durable"
    """What is committed durably."""
    LATEST = "latest"
    """What is applied; a crash may take it back."""
    STANDBY = "standby"
    """What a follower knows; it may lag."""
    SNAPSHOT = "snapshot"
    """What a follower or the newest snapshot knows; answers say ``standby``."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question about one key.

    ``indicator`` is the name of a computation, or ``COMPUTATION.NAME`` for one value of it: an aggregate, or a state of
    a callback. ``window_us`` None: what needs no window (state, window results). ``until_us`` is where the window ends
    (exclusive); None means now. Whoever serves the question sets it to the wall clock before an operator is asked."""

    indicator: str
    key: Key
    window_us: int | None = None
    until_us: int | None = None
    mode: Mode = Mode.COVERING
    consistency: Consistency = Consistency.DURABLE

    @property
    def computation(self) -> str:
        """The computation that is asked."""
        return self.indicator.partition(".")[0]

    @property
    def name(self) -> str:
        """The one value of it that is asked for; "" for all."""
        return self.indicator.partition(".")[2]

    def chosen(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """Of all values, those that are asked for. QueryError when there is none of the name."""
        if not self.name:
            return values
        if self.name not in values:
            there = ", ".join(sorted(values)) or "nothing"
            raise QueryError("unknown_indicator", f"{self.computation} has no {self.name!r}; it has {there}")
        return {self.name: values[self.name]}


@dataclass(frozen=True, slots=True)
class Finding:
    """What an operator knows of a question: ``values`` by name, and of which span of event time ([start, end); both
    None where the values have none). ``complete``: the watermark has passed the end, and nothing of the span has been
    forgotten."""

    values: Mapping[str, object]
    covered_start_us: int | None = None
    covered_end_us: int | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """An answer: ``values`` of the span [``covered_start_us``, ``covered_end_us``) as of ``commit`` of ``shard``, owned
    under ``token``, whose watermark was ``watermark_us``. See :class:`Finding`. ``lag_us``: how long ago
    a standby had all that was certain of its owner's commits, where that is known."""

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
"""What everything about queries calls it."""

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
"""The kinds of errors, in the words that programs compare: no such name; a key of another type; a window that is
negative, missing, not on edges or not for this computation; a computation that cannot be asked; a window longer than
what is kept; a formula whose values do not fit; text that is no formula; a question over the bounds; a key of another
worker; nobody who could answer at the moment."""


class QueryError(Exception):
    """A question that has no answer: ``code`` is one of :data:`CODES`, ``sentence`` is for people."""

    def __init__(self, code: str, sentence: str, failed: bool = False) -> None:
        """``failed``: the worker is to blame, not the question."""
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.failed = failed
