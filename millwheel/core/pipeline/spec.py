"""A pipeline as a value: the common result of YAML and the Python API. Frozen, complete, validated elsewhere.

All times are microseconds. ``where`` fields hold the line of the user's file ("pipeline.yaml:12"), for errors that are
found after validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millwheel.core.model.failures import SHARE, OnError
from millwheel.core.model.limits import DEFAULTS, Limits
from millwheel.core.tracing.settings import TracingSpec

_SIDE = "side:"
"""The prefix of ``late: side:STREAM``."""
INSTANCE = "__instance__"
"""The field of the number of an instance, in what partial computations emit."""
DEAD_LETTERS = "dead_letters"
"""The stream every pipeline has: records that could not be used, with the reason."""


class Delivery(Enum):
    """How a computation treats records that are delivered twice."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class Productions(Enum):
    """When a production is sent: after it was checkpointed, or before."""

    STRONG = "strong"
    WEAK = "weak"


class KeyKind(Enum):
    """Where a consumer takes the key of a record from."""

    FIELD = "field"
    FIELDS = "fields"
    FUNCTION = "function"
    RECORD = "record"  # the key the producer gave; for a source stream without one, the partition


class Divided(Enum):
    """How the keys of a computation are divided over instances, where any are: ``scatter``, ``auto``, or the name of a
    grouping (core/grouping/catalogue.py)."""

    ALL = "scatter"
    """All of them, by the numbers of records."""
    HOT = "auto"
    """Those with many of the records; the others go to instance 0."""
    PKG = "pkg"
    DKG = "dkg"
    NAG = "nag"
    DAG = "dag"
    TAG = "tag"
    D_CHOICES = "d-choices"
    W_CHOICES = "w-choices"
    SHUFFLE = "shuffle"

    @property
    def by_tables(self) -> bool:
        """Whether sources decide it, by tables of epochs."""
        return self is not Divided.ALL

    @property
    def by_slots(self) -> bool:
        """Whether an instance is a fixed place: the records of all keys that it gets are in one shard."""
        return self.by_tables and self is not Divided.HOT


@dataclass(frozen=True, slots=True)
class KeySpec:
    """A key extractor. ``names`` holds one field, several, or the one ``module:function``.

    ``instances``: above 1 the key is divided, and has the number of an instance as its last part; ``divided`` says
    which keys have more than one. ``partitions``: above 0 the key is the partition of a dictionary that the one field
    belongs to."""

    kind: KeyKind
    names: tuple[str, ...] = ()
    instances: int = 1
    partitions: int = 0
    divided: Divided = Divided.ALL

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that stand for the key in results, () where it is not made of fields."""
        plain = self.names if self.kind in (KeyKind.FIELD, KeyKind.FIELDS) else ()
        return (*plain, INSTANCE) if plain and self.instances > 1 else plain


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """``kind`` is the registered name ("files", "generator", "injection"), ``options`` its validated settings."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def carries_retractions(self) -> bool:
        """Whether some records take back earlier ones: the change events of a database do."""
        return has_format(self.options, "debezium")


def has_format(options: Mapping[str, Any], name: str) -> bool:
    """Whether the options of a source or sink choose this format, with options of its own or without."""
    given = options.get("format")
    return given == name or (isinstance(given, Mapping) and name in given)


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A named flow. Only a stream with a ``source`` has a timestamp, an id and a watermark of its own.

    ``timestamp`` is a field name or ``module:function``; ``timestamp_unit_us`` is the µs that one unit of a
    number there is worth (1 for µs, 1000 for ms); text is read as ISO 8601. Unless the pipeline ``states_unit``,
    numbers that are very likely of another one are refused. ``id`` is the field of the
    external id that duplicates share. ``schema`` is ``module:Class``, a msgspec Struct the values are decoded
    into. ``fields`` are declared field types (name to "int", "float", "str", "bool"), which let declarative
    aggregations run on columns. ``idle_after_us`` None means a silent partition holds the watermark for ever.
    """

    name: str
    source: SourceSpec | None = None
    timestamp: str = ""
    timestamp_unit_us: int = 1
    states_unit: bool = True
    id: str = ""
    id_horizon_us: int = 3_600_000_000
    schema: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    max_delay_us: int = 0
    idle_after_us: int | None = 5_000_000
    max_future_us: int | None = 86_400_000_000
    on_error: OnError = SHARE
    where: str = ""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One stream a computation consumes, and how it takes the key from it."""

    stream: str
    key: KeySpec


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One output field of an aggregation: ``name: {function: argument}``, e.g. ``bytes: {sum: size}``.

    ``argument`` is a field name or an expression over the record's fields, "" for functions that need none
    (``count``). ``condition`` is the ``where:`` expression a record must satisfy, "" for all.
    ``options`` are the function's own settings (``k`` of top_k, ``q`` of quantile, …).
    """

    name: str
    function: str
    argument: str = ""
    condition: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """How records are put into windows, as written: ``kind`` and its settings in µs or plain values.

    kinds: tumbling (size_us, offset_us, time_zone, empty), sliding (size_us, every_us, offset_us, changes),
    session (gap_us), global, count (count), cumulative (size_us, every_us, time_zone), custom (factory).
    """

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlicesSpec:
    """Aggregates per key and slice of time, kept to be asked. ``levels_us`` are the sizes of slices, finest first.
    Slices that end ``keep_us`` behind the watermark go, and so do those of a key without a record for ``ttl_us``."""

    levels_us: tuple[int, ...]
    keep_us: int
    time_zone: str = ""
    ttl_us: int | None = None


class AggregationStage(Enum):
    """The part of an aggregation that a computation does."""

    WHOLE = "whole"
    PARTIAL = "partial"
    """It emits accumulators, of divided keys."""
    FINAL = "final"
    """It merges accumulators."""


class StepKind(Enum):
    """The kind of a step."""

    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step from a record's value to others. Exactly one of ``function`` (``module:function``), ``expression`` and
    ``fields`` (the fields of the new value, each an expression; only for ``map``) is given."""

    kind: StepKind
    function: str = ""
    expression: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeduplicateSpec:
    """Of records with equal ``fields`` (none: equal values) and key, one is passed on and those within ``within_us``
    (event time) of it are not."""

    within_us: int
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DictionarySpec:
    """Each different value of the field ``of`` gets a whole number, for ever, as the field ``name``. ``keep``: the
    other fields that are passed on (empty: all). ``ttl_us``: a value that no record had for so long, in event time, is
    forgotten, and would get another number."""

    of: str
    name: str
    partitions: int
    keep: tuple[str, ...] = ()
    ttl_us: int | None = None


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The rows of the table ``of`` by their keys, as change events leave them. ``key`` has the fields of the key, if
    they are named. The fields ``beside`` a row are those of its event, or of its message."""

    of: str
    key: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BranchSpec:
    """One way out of a branching computation: the records for which ``condition`` holds ("": those that no other branch
    took)."""

    stream: str
    condition: str = ""


class JoinKind(Enum):
    """Which records of a windowed join are emitted without a partner."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"


class Missing(Enum):
    """The treatment of a record that has no match to enrich it."""

    KEEP = "keep"
    DROP = "drop"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class EnrichSpec:
    """Records get the last value of the stream ``stream`` for their key as the field ``name``. ``waits``: as of their
    own event time; otherwise as of their arrival."""

    stream: str
    name: str
    missing: Missing = Missing.KEEP
    waits: bool = True


@dataclass(frozen=True, slots=True)
class LookupSpec:
    """Records get fields from another system. ``kind`` is the registered name ("redis"), ``options`` its settings,
    ``by`` the expressions that make the key (empty: those that the lookup names). The answer becomes the field
    ``name``, or ``fields`` of it (new name to name) become fields. At most ``cache_size`` answers are kept, each for
    ``cache_ttl_us``. ``cache_absent``: absent entries are cached as well. One request has at most ``batch`` keys."""

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


@dataclass(frozen=True, slots=True)
class ComputationSpec:
    """A node of the graph: a callback class, a window with aggregates or a callback, steps from value to value, the
    removal of duplicates, branches, a join of two streams in windows, the enrichment of one stream by another or by
    lookups, a dictionary, or a table.

    ``ordered``: the records of each key come in the order of their timestamps. ``match_all``: a record takes every
    branch whose condition holds, not only the first.

    ``scatter``: the number of instances over which keys are divided (``divided`` says how); the planner makes a partial
    and a final ``stage`` of such a computation (see skew.py).

    ``numbered``: the values that it counts get numbers of a dictionary with so many partitions first (see visitors.py),
    which forgets them after ``numbered_ttl_us``.

    ``trigger`` is the trigger as a plain tree (see core/triggers/triggers.py), None for the default.
    ``queryable``: "latest" where the newest result of each key is kept to be asked.
    ``callback`` is ``module:Class``. ``options`` go to the callback's constructor as keyword arguments.
    """

    name: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...] = ()
    callback: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[StepSpec, ...] = ()
    deduplicate: DeduplicateSpec | None = None
    branches: tuple[BranchSpec, ...] = ()
    match_all: bool = False
    ordered: bool = False
    join: JoinKind | None = None
    enrich: EnrichSpec | None = None
    lookup: LookupSpec | None = None
    dictionary: DictionarySpec | None = None
    table: TableSpec | None = None
    window: WindowSpec | None = None
    slices: SlicesSpec | None = None
    aggregates: tuple[AggregateSpec, ...] = ()
    condition: str = ""
    trigger: Mapping[str, Any] | None = None
    accumulation: str = "discarding"
    allowed_lateness_us: int = 0
    output_time: str = "end_of_window"
    late: str = "drop"
    queryable: str = ""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    productions: Productions = Productions.STRONG
    max_attempts: int = 3
    on_error: OnError = SHARE
    shards: int | None = None
    standby: int = 0
    where: str = ""
    scatter: int = 1
    divided: Divided = Divided.ALL
    numbered: int = 0
    numbered_ttl_us: int | None = None
    stage: AggregationStage = AggregationStage.WHOLE

    @property
    def late_side(self) -> str:
        """The stream that gets the late records, "" when none does."""
        return self.late.removeprefix(_SIDE) if self.late.startswith(_SIDE) else ""

    @property
    def takes_late(self) -> bool:
        """True when records that are late at the source may still change what it does."""
        return self.allowed_lateness_us > 0 or self.late != "drop" or self.slices is not None

    @property
    def identified(self) -> bool:
        """True when its productions need ids (``production_ids.py``): they are sent before they are durable."""
        return self.productions is Productions.WEAK and self.delivery is Delivery.EXACTLY_ONCE


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A stream's way out: ``kind`` is the registered name ("files", "stdout"), ``options`` its settings, ``key`` what
    its records are spread and ordered by. ``takes_late``: it also gets records that are late at the source."""

    stream: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    takes_late: bool = False
    key: KeySpec = KeySpec(KeyKind.RECORD)

    @property
    def may_refuse(self) -> bool:
        """Whether the target can refuse a record. Standard output accepts every record, and so do files without a
        schema."""
        return self.kind not in ("files", "stdout") or has_format(self.options, "avro")


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """A named query: ``formula`` over ``COMPUTATION.VALUE`` of several computations, asked for the window ``window_us``
    unless another is given. ``key`` names the parts of its key. ``keys`` has the parts that are the key of a
    computation; a computation without an entry there has the whole key."""

    name: str
    formula: str
    window_us: int | None = None
    key: tuple[str, ...] = ()
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """The whole pipeline. ``folder`` is where callbacks are looked for first (absolute path); ``ship`` are the files
    in it, or globs of them, that workers get beside the Python that is imported. Without ``tracing`` no record is
    traced. ``latency_us`` is the least time between the beginnings of a worker's steps (0: none); None (balanced):
    twice as long as a step takes, a millisecond and a half at most."""

    name: str
    streams: tuple[StreamSpec, ...]
    computations: tuple[ComputationSpec, ...]
    sinks: tuple[SinkSpec, ...]
    folder: str
    file: str = ""
    limits: Limits = DEFAULTS
    ship: tuple[str, ...] = ()
    queries: tuple[QuerySpec, ...] = ()
    tracing: TracingSpec | None = None
    latency_us: int | None = None

    def stream(self, name: str) -> StreamSpec:
        """The stream's own spec, or a bare one for a stream that a computation produces."""
        return next((s for s in self.streams if s.name == name), StreamSpec(name))
