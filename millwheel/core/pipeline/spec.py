"""A pipeline as a value: the common result of YAML and the Python API. Frozen, complete, validated
elsewhere.

All times are microseconds. ``where`` fields hold the line of the user's file ("pipeline.yaml:12"),
for errors that are found after validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from millwheel.core.expressions.declaration import NullLogic
from millwheel.core.model.failures import SHARE, OnError
from millwheel.core.model.limits import DEFAULTS, Limits
from millwheel.core.pipeline.keys import OWN_KEY, Divided, KeySpec
from millwheel.core.pipeline.work import (
    FOREVER,
    NOTHING,
    AggregateSpec,
    AggregationSpec,
    CallbackSpec,
    FiringSpec,
    OverSpec,
    SlicesSpec,
    TopSpec,
    WindowCallbackSpec,
    WindowedSpec,
    Work,
)

_W = TypeVar("_W")
_SIDE = "side:"
"""The prefix of ``late: side:STREAM``."""
DEAD_LETTERS = "dead_letters"
"""The stream every pipeline has: records that could not be used, with the reason."""


class Delivery(Enum):
    """The treatment of records that are delivered twice."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class Productions(Enum):
    """The time at which a production is sent: after it is checkpointed, or before."""

    STRONG = "strong"
    WEAK = "weak"


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """``kind`` is the registered name ("files", "generator", "injection"), ``options`` its
    validated settings."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def carries_retractions(self) -> bool:
        """Whether some records take back earlier ones: the change events of a database do."""
        return has_format(self.options, "debezium")


def has_format(options: Mapping[str, Any], name: str) -> bool:
    """Whether the options of a source or sink choose this format, with options of its own or
    without."""
    choice = options.get("format")
    return choice == name or (isinstance(choice, Mapping) and name in choice)


@dataclass(frozen=True, slots=True)
class UpsertSpec:
    """``table:`` of a stream: its records are rows, each of which replaces the one of the same
    ``key`` before it. A record that satisfies the expression ``delete`` deletes the row of its
    key."""

    key: KeySpec
    delete: str = ""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A named flow. Only a stream with a ``source`` has a timestamp, an id and a watermark of its
    own.

    ``timestamp`` is a field name or ``module:function``; ``timestamp_unit_us`` is the µs that one
    unit of a number there is worth (1 for µs, 1000 for ms); text is read as ISO 8601. Unless the
    pipeline ``states_unit``, numbers that are very likely of another one are refused. ``arrival``:
    the timestamp is the time at which a record was read. ``id`` is the
    field of the external id that duplicates share. ``schema`` is ``module:Class``, a msgspec Struct
    the values are decoded into. ``fields`` are declared field types (name to "int", "float", "str",
    "bool"), which let declarative aggregations run on columns; ``times`` are the timestamps among
    them, "int" once they are read, with their :attr:`.TimeForm.kind`, and ``decimals`` the
    decimals, whole units then, with their :attr:`.DecimalForm.kind`. ``idle_after_us`` None means a
    silent partition holds the watermark for ever. A source without ``timestamp`` is that of a
    ``table`` that ends: all its records have the time BEGINNING.
    """

    name: str
    source: SourceSpec | None = None
    timestamp: str = ""
    timestamp_unit_us: int = 1
    states_unit: bool = True
    arrival: bool = False
    id: str = ""
    id_horizon_us: int = 3_600_000_000
    schema: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, str] = field(default_factory=dict)
    decimals: Mapping[str, str] = field(default_factory=dict)
    max_delay_us: int = 0
    idle_after_us: int | None = 5_000_000
    max_future_us: int | None = 86_400_000_000
    on_error: OnError = SHARE
    table: UpsertSpec | None = None
    where: str = ""

    @property
    def declared(self) -> Mapping[str, str]:
        """The declared types of fields as a source reads them."""
        return {**self.fields, **self.times, **self.decimals}

    @property
    def timeless(self) -> bool:
        """Whether its records have no times, as rows of a table that ends."""
        return self.source is not None and not self.timestamp and not self.arrival

    @property
    def takes_back(self) -> bool:
        """Whether some of its records take back earlier ones."""
        changes = self.source is not None and self.source.carries_retractions
        return changes or self.table is not None


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One stream a computation consumes, and the extractor of its key."""

    stream: str
    key: KeySpec


class AggregationStage(Enum):
    """The part of an aggregation that a computation does."""

    WHOLE = "whole"
    PARTIAL = "partial"
    """It emits accumulators, of divided keys."""
    FINAL = "final"
    """It merges accumulators."""


@dataclass(frozen=True, slots=True)
class ComputationSpec:
    """A node of the graph: records of ``inputs`` get its ``work``, and results go to ``outputs``.

    ``ordered``: the records of each key come in the order of their timestamps.

    ``scatter``: the number of instances over which keys are divided (as ``divided``); the planner
    makes a partial and a final ``stage`` of such a computation (see skew.py).
    """

    name: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...] = ()
    work: Work = NOTHING
    ordered: bool = False
    delivery: Delivery = Delivery.EXACTLY_ONCE
    productions: Productions = Productions.STRONG
    max_attempts: int = 3
    on_error: OnError = SHARE
    shards: int | None = None
    standby: int = 0
    where: str = ""
    scatter: int = 1
    divided: Divided = Divided.ALL
    stage: AggregationStage = AggregationStage.WHOLE

    def work_as(self, kind: type[_W]) -> _W:
        """Its work, which must be of this kind."""
        work = self.work
        assert isinstance(work, kind), f"{self.name} is not a {kind.__name__}"
        return work

    @property
    def windowed(self) -> WindowedSpec | None:
        """Its work where it is done in windows, of any kind."""
        return self.work if isinstance(self.work, WindowedSpec) else None

    @property
    def is_change_log(self) -> bool:
        """Whether it keeps one group for each key, without windows, and emits its changes."""
        return isinstance(self.work, AggregationSpec) and self.work.window.kind == FOREVER

    @property
    def called(self) -> CallbackSpec | None:
        """The user's class that gets its records, alone or by window."""
        if isinstance(self.work, WindowCallbackSpec):
            return self.work.callback
        return self.work if isinstance(self.work, CallbackSpec) else None

    @property
    def firing(self) -> FiringSpec:
        """The settings for when its windows emit; the defaults without windows."""
        return FiringSpec() if self.windowed is None else self.windowed.firing

    @property
    def aggregates(self) -> tuple[AggregateSpec, ...]:
        """The aggregates that it keeps, in windows or in slices."""
        if isinstance(self.work, AggregationSpec | SlicesSpec | OverSpec):
            return self.work.aggregates
        return ()

    @property
    def condition(self) -> str:
        """The expression that a record of its windows or slices must satisfy, "" for all."""
        if isinstance(self.work, WindowedSpec | SlicesSpec | OverSpec):
            return self.work.condition
        return ""

    @property
    def queryable(self) -> bool:
        """Whether the newest result of each key is kept for queries."""
        return isinstance(self.work, AggregationSpec) and bool(self.work.queryable)

    @property
    def late(self) -> str:
        """The treatment of late records: "drop", "refire" or "side:STREAM"."""
        return self.work.late if isinstance(self.work, SlicesSpec) else self.firing.late

    @property
    def late_side(self) -> str:
        """The stream that gets the late records, "" when none does."""
        return self.late.removeprefix(_SIDE) if self.late.startswith(_SIDE) else ""

    @property
    def takes_late(self) -> bool:
        """True when records that are late at the source may still change what it does."""
        lateness_us = self.firing.allowed_lateness_us
        if isinstance(self.work, TopSpec) and self.work.upserts:
            return True
        ends = not isinstance(self.work, SlicesSpec) and not self.is_change_log
        return lateness_us > 0 or self.late != "drop" or not ends

    @property
    def identified(self) -> bool:
        """True when its productions need ids (``production_ids.py``): they are sent before they are
        durable."""
        return self.productions is Productions.WEAK and self.delivery is Delivery.EXACTLY_ONCE


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A sink of a stream: ``kind`` is the registered name ("files", "stdout"), ``options`` its
    settings, ``key`` the key by which its records are spread and ordered. ``takes_late``: it also
    gets records that are late at the source."""

    stream: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    takes_late: bool = False
    key: KeySpec = OWN_KEY

    @property
    def may_refuse(self) -> bool:
        """Whether the target can refuse a record. Standard output accepts every record, and so do
        files without a schema."""
        return self.kind not in ("files", "stdout") or has_format(self.options, "avro")


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """A named query: ``formula`` over ``COMPUTATION.VALUE`` of several computations, for the window
    ``window_us`` unless the client names another. ``key`` names the parts of its key. ``keys`` has
    the parts that are the key of a computation; a computation without an entry there has the whole
    key."""

    name: str
    formula: str
    window_us: int | None = None
    key: tuple[str, ...] = ()
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True, slots=True)
class KeptKinds:
    """The kinds of the parts of its ``key``, and of the ``values``, that a computation keeps for
    queries, where a pipeline has decimals: for a decimal the digits behind its point, for a record
    its fields, for a list a list, else a word."""

    key: tuple[Any, ...]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """The whole pipeline. ``folder`` is where callbacks are looked for first (absolute path);
    ``ship`` are the files in it, or globs of them, that workers get beside the Python that is
    imported. ``functions`` are the user's functions that expressions may call: name to
    ``module:function``; the ``vectorized`` ones take and return arrays, each with the kind of its
    values. ``nulls`` is the meaning of nulls in expressions. Without ``tracing`` no
    record is traced. ``latency_us`` is the least time between the beginnings of a worker's steps
    (0: none); None (balanced): twice as long as a step takes, a millisecond and a half at most."""

    name: str
    streams: tuple[StreamSpec, ...]
    computations: tuple[ComputationSpec, ...]
    sinks: tuple[SinkSpec, ...]
    folder: str
    file: str = ""
    limits: Limits = DEFAULTS
    ship: tuple[str, ...] = ()
    queries: tuple[QuerySpec, ...] = ()
    scales: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kept: Mapping[str, KeptKinds] = field(default_factory=dict)
    tracing: TracingSpec | None = None
    latency_us: int | None = None
    functions: Mapping[str, str] = field(default_factory=dict)
    vectorized: Mapping[str, str] = field(default_factory=dict)
    nulls: NullLogic = NullLogic.ERROR

    def stream(self, name: str) -> StreamSpec:
        """The stream's own spec, or a bare one for a stream that a computation produces."""
        return next((s for s in self.streams if s.name == name), StreamSpec(name))


@dataclass(frozen=True, slots=True)
class TracingSpec:
    """Records that come with a trace are traced. Of the others the share ``sample`` (0 to 1) is,
    too. With ``keys`` spans show keys, and not only their hashes."""

    sample: float = 0.0
    keys: bool = False
