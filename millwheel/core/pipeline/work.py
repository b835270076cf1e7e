"""The work of a computation: the processing of its records. Each kind has its own settings.

All times are microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millwheel.core.pipeline.keys import KeySpec

# --- code of the user's, and steps from value to value --------------------------------------------


@dataclass(frozen=True, slots=True)
class CallbackSpec:
    """The user's class, ``module:Class``. ``options`` are the keyword arguments of its
    constructor."""

    callback: str
    options: Mapping[str, Any] = field(default_factory=dict)


class StepKind(Enum):
    """The kind of a step."""

    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step from a record's value to others. Exactly one of ``function`` (``module:function``),
    ``expression`` and ``fields`` is set: for ``map`` the fields of the new value, each an
    expression; for ``flat_map`` one field that is added, with a list of its values."""

    kind: StepKind
    function: str = ""
    expression: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def passes_on(self) -> bool:
        """Whether results have all fields of the value."""
        return self.kind is StepKind.FILTER or (
            self.kind is StepKind.FLAT_MAP and bool(self.fields)
        )


@dataclass(frozen=True, slots=True)
class StepsSpec:
    """Steps from value to value, in order."""

    steps: tuple[StepSpec, ...]


@dataclass(frozen=True, slots=True)
class DeduplicateSpec:
    """Of records with equal ``fields`` (none: equal values) and key, one is passed on and those
    within ``within_us`` (event time) of it are not."""

    within_us: int
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopSpec:
    """The first ``k`` records of each key by the orders ``by``, each an expression with or without
    a direction (``price desc``); behind them by their time, the earliest or the ``latest`` first.
    ``rank``: the field for the rank of a record, from 1; "" for none. With ``upserts`` the
    records are those of a table behind its source: of one time the last in the source counts, and
    one that satisfies the expression ``delete`` deletes the row of its key."""

    by: tuple[str, ...] = ()
    k: int = 1
    rank: str = ""
    latest: bool = False
    upserts: bool = False
    delete: str = ""


@dataclass(frozen=True, slots=True)
class BranchSpec:
    """One output of a branching computation: the records for which ``condition`` holds ("": those
    that no other branch took)."""

    stream: str
    condition: str = ""


@dataclass(frozen=True, slots=True)
class BranchesSpec:
    """Several outputs. A record takes the first branch whose condition holds, or each one if
    ``match_all``."""

    branches: tuple[BranchSpec, ...]
    match_all: bool = False


# --- windows --------------------------------------------------------------------------------------


FOREVER = "forever"
"""The kind of the groups of a change log, which have no window. No file names it."""


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """The windows of a computation, as written: ``kind`` and its settings in µs or plain values.

    kinds: tumbling (size_us, offset_us, time_zone, empty), sliding (size_us, every_us, offset_us,
    changes), session (gap_us), global, count (count), cumulative (size_us, every_us, time_zone),
    custom (factory), forever (ttl_us).
    """

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FiringSpec:
    """The times at which windows emit, and the treatment of late records.

    ``trigger`` is a plain tree (see core/windows/trees.py), None for the default. ``late`` is
    "drop", "refire" or "side:STREAM"."""

    trigger: Mapping[str, Any] | None = None
    accumulation: str = "discarding"
    allowed_lateness_us: int = 0
    output_time: str = "end_of_window"
    late: str = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedSpec:
    """The base of all work in windows. ``condition`` is the expression that a record must satisfy,
    "" for all."""

    window: WindowSpec
    condition: str = ""
    firing: FiringSpec = FiringSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCallbackSpec(WindowedSpec):
    """A callback gets the records of a window when it fires."""

    callback: CallbackSpec


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One output field of an aggregation: ``name: {function: argument}``, e.g. ``bytes: {sum:
    size}``.

    ``argument`` is a field name or an expression over the record's fields, "" for functions that
    need none (``count``). ``condition`` is the ``where:`` expression a record must satisfy, "" for
    all. ``options`` are the function's own settings (``k`` of top_k, ``q`` of quantile, …).
    """

    name: str
    function: str
    argument: str = ""
    condition: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NumberingSpec:
    """Counted values get numbers of a dictionary with so many partitions first (see visitors.py). A
    value is forgotten after ``ttl_us``; None: never."""

    partitions: int
    ttl_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationSpec(WindowedSpec):
    """Aggregates of the records of a window; without any, the result is the records. ``queryable``:
    "latest" where the newest result of each key is kept for queries. ``then`` are fields that are
    made of the others of a result, by name, each an expression; ``having`` is the expression that a
    result must satisfy, "" for all."""

    aggregates: tuple[AggregateSpec, ...] = ()
    then: Mapping[str, str] = field(default_factory=dict)
    having: str = ""
    queryable: str = ""
    numbered: NumberingSpec | None = None


@dataclass(frozen=True, slots=True)
class SlicesSpec:
    """Aggregates per key and slice of time, kept for queries. ``levels_us`` are the sizes of
    slices, finest first. Slices that end ``keep_us`` behind the watermark go, and so do those of a
    key without a record for ``ttl_us``. ``late``: the treatment of records of slices that have
    gone."""

    levels_us: tuple[int, ...]
    keep_us: int
    time_zone: str = ""
    ttl_us: int | None = None
    aggregates: tuple[AggregateSpec, ...] = ()
    condition: str = ""
    late: str = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverSpec:
    """Each record with aggregates of itself and of those before it in its group, in the order of
    their times. With ``by_rows`` there are ``size`` of them at most; otherwise they lie at most
    ``size`` µs before it, and those of its own time are among them. None: all of them. A group
    without a record for ``ttl_us`` begins anew. ``condition`` is the expression that a record must
    satisfy, "" for all."""

    by_rows: bool
    size: int | None
    ttl_us: int | None = None
    aggregates: tuple[AggregateSpec, ...] = ()
    condition: str = ""


# --- two streams, and other systems ---------------------------------------------------------------


class JoinKind(Enum):
    """The rows in the result of a join beside the pairs, or in place of them."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    OUTER = "outer"
    SEMI = "semi"
    """No pairs: the rows of the first stream that have a partner."""
    ANTI = "anti"
    """No pairs: those that have none."""

    @property
    def in_pairs(self) -> bool:
        """Whether there are pairs in the result; else it has rows of the first stream alone."""
        return self not in (JoinKind.SEMI, JoinKind.ANTI)

    @property
    def without_partner(self) -> tuple[bool, bool]:
        """Whether rows of the first and of the second stream are in the result while they have no
        partner."""
        both = JoinKind.OUTER
        first = self in (JoinKind.LEFT, JoinKind.ANTI, both)
        return first, self in (JoinKind.RIGHT, both)

    def missing(self, inputs: int) -> tuple[bool, ...]:
        """Whether a null stands for an input without a row, for each input."""
        rest = self in (JoinKind.LEFT, JoinKind.ANTI, JoinKind.OUTER)
        first = self in (JoinKind.RIGHT, JoinKind.OUTER)
        return first, *(rest for _ in range(inputs - 1))


_MERGING = ("session", "custom")
"""Kinds of windows whose bounds may change as records come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSpec(WindowedSpec):
    """Pairs of the records of two streams that have equal keys and lie in the same window; of
    several streams, all combinations. Where a window fires again, it emits the changes since it
    fired before."""

    kind: JoinKind

    @property
    def changes(self) -> bool:
        """Whether windows may fire more than once."""
        return self.firing.trigger is not None or self.firing.allowed_lateness_us > 0

    @property
    def takes_back(self) -> bool:
        """Whether it takes back results: of records that stood alone, or of a window that has
        become longer, or has merged with another."""
        alone = any(self.kind.without_partner)
        return self.changes and (alone or self.window.kind in _MERGING)


@dataclass(frozen=True, slots=True)
class RegularJoinSpec:
    """Pairs of all records of two streams that have equal keys, whenever they come; of several
    streams, all combinations. A record of each stream is forgotten ``ttls_us`` (event time; None:
    never) after its last change."""

    kind: JoinKind
    ttls_us: tuple[int | None, ...] = (None, None)

    @property
    def takes_back(self) -> bool:
        """Whether its results change even if its inputs do not."""
        return any(self.kind.without_partner)


@dataclass(frozen=True, slots=True)
class BoundSpec:
    """A time that each record of a stream names: an ``expression`` over ``{stream: value}``."""

    stream: str
    expression: str


@dataclass(frozen=True, slots=True)
class IntervalJoinSpec:
    """Pairs of the records of two streams that have equal keys and lie near each other in time: the
    second at most ``before_us`` before and ``after_us`` behind the first (None: any), and neither
    before the times ``froms`` nor behind the times ``untils`` of the other."""

    kind: JoinKind
    before_us: int | None = 0
    after_us: int | None = 0
    froms: tuple[BoundSpec, ...] = ()
    untils: tuple[BoundSpec, ...] = ()


class Missing(Enum):
    """The treatment of a record that has no match to enrich it."""

    KEEP = "keep"
    DROP = "drop"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class BroadcastSpec:
    """A table that is whole in several processes, up to ``limit_bytes`` of encoded keys and rows.
    One that ends and has no times is read by every worker. Of another there are so many ``copies``
    (0: as many as the planner chooses). The planner adds ``by``, the key by which a record finds
    its row, and ``of``, the key of the rows of a table that workers read: the records themselves
    keep the key that they came with."""

    limit_bytes: int
    by: KeySpec | None = None
    of: KeySpec | None = None
    copies: int = 0


@dataclass(frozen=True, slots=True)
class EnrichSpec:
    """Records get the last value of the stream ``stream`` for their key as the field ``name``.
    ``waits``: as of their own event time; otherwise as of their arrival. With ``upserts`` the
    stream is that of a table's source: a value that satisfies ``delete`` ends the one before it.
    ``timeless``: that table ends, and has no times; records wait until all of it is there, and no
    longer. ``broadcast``: each worker reads all of it, and the stream is not an input; or there are
    copies of it, and the stream is that of the changes of each. ``of``:
    the name of the table in a file, where the stream has another."""

    stream: str
    name: str
    missing: Missing = Missing.KEEP
    waits: bool = True
    upserts: bool = False
    delete: str = ""
    timeless: bool = False
    broadcast: BroadcastSpec | None = None
    of: str = ""

    @property
    def held(self) -> bool:
        """Whether each worker reads all of the table."""
        return self.broadcast is not None and self.timeless

    @property
    def copied(self) -> bool:
        """Whether there are copies of the table."""
        return self.broadcast is not None and not self.timeless


@dataclass(frozen=True, slots=True)
class LookupSpec:
    """Records get fields from another system. ``kind`` is the registered name ("redis"),
    ``options`` its settings, ``by`` the expressions that make the key (empty: those that the lookup
    names). The answer becomes the field ``name``, or ``fields`` of it (new name to name) become
    fields. At most ``cache_size`` answers are kept, each for ``cache_ttl_us``. ``cache_absent``:
    absent entries are cached as well. One request has at most ``batch`` keys."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    name: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    missing: Missing = Missing.KEEP
    cache_size: int = 0
    cache_ttl_us: int = 0
    cache_absent: bool = True
    batch: int = 10_000


# --- what the planner adds, and numbers for values -----------------------------------------------


@dataclass(frozen=True, slots=True)
class DictionarySpec:
    """Each different value of the field ``of`` gets a whole number, for ever, as the field
    ``name``. ``keep``: the other fields that are passed on (empty: all). ``ttl_us``: a value that
    no record had for so long, in event time, is forgotten, and would get another number."""

    of: str
    name: str
    partitions: int
    keep: tuple[str, ...] = ()
    ttl_us: int | None = None


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The rows of the table ``of`` by their keys, as change events leave them. ``key`` has the
    fields of the key, if they are named. The fields ``beside`` a row are those of its event, or of
    its message."""

    of: str
    key: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CopiesSpec:
    """Each record of the table ``of`` goes to each of so many ``copies``, under the ``key`` of its
    row. A copy may have ``limit_bytes`` of encoded keys and rows. With ``upserts`` the stream is
    that of the table's source, and a record that satisfies ``delete`` is not a row."""

    of: str
    key: KeySpec
    copies: int
    limit_bytes: int
    upserts: bool = False
    delete: str = ""


Work = (
    CallbackSpec
    | StepsSpec
    | DeduplicateSpec
    | TopSpec
    | BranchesSpec
    | WindowCallbackSpec
    | AggregationSpec
    | JoinSpec
    | RegularJoinSpec
    | IntervalJoinSpec
    | SlicesSpec
    | OverSpec
    | EnrichSpec
    | LookupSpec
    | DictionarySpec
    | TableSpec
    | CopiesSpec
)
"""Every computation does exactly one of these."""
NOTHING = StepsSpec(())
"""Records are passed on as they are."""
