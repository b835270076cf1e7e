"""The port to a collector of spans, and its simplest implementation, which only passes contexts
on."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from millwheel.core.tracing.contexts import TraceContext

Attributes = Mapping[str, str | int | bool]


class SpanKind(Enum):
    """OpenTelemetry's kinds of spans, as far as they are used."""

    INTERNAL = "internal"
    CONSUMER = "consumer"
    PRODUCER = "producer"


class SpanCounts(NamedTuple):
    """How many spans have ended, how many of them were dropped instead of sent, and how many traced
    records got none, because their bundle had too many."""

    ended: int
    dropped: int
    left_out: int


class TraceSpan(Protocol):
    """Something that is being done for a record."""

    @property
    def context(self) -> TraceContext:
        """The context of the records produced from it."""

    def note(self, name: str, fact: str | int | bool) -> None:
        """Set an attribute."""

    def fail(self, why: str) -> None:
        """It has not worked."""

    def end(self, at_us: int) -> None:
        """It is done."""


class Spans(Protocol):
    """Begins spans. Never waits."""

    @property
    def begins_traces(self) -> bool:
        """Whether records without a context may begin a trace."""

    def begin(
        self, name: str, kind: SpanKind, parent: TraceContext, at_us: int, attributes: Attributes
    ) -> TraceSpan:
        """Begin a span below ``parent``. What never ends is never sent."""


class PassedOn:
    """A span that is not recorded: produced records keep the context of their input."""

    __slots__ = ("context",)

    def __init__(self, context: TraceContext) -> None:
        self.context = context

    def note(self, name: str, fact: str | int | bool) -> None:
        """Kept nowhere, like the rest."""

    def fail(self, why: str) -> None:
        """See :meth:`note`."""

    def end(self, at_us: int) -> None:
        """See :meth:`note`."""


class NoSpans:
    """Without a collector: contexts travel as they came, and no trace begins here."""

    begins_traces = False

    def begin(
        self, name: str, kind: SpanKind, parent: TraceContext, at_us: int, attributes: Attributes
    ) -> TraceSpan:
        """See :class:`Spans`."""
        return PassedOn(parent)
