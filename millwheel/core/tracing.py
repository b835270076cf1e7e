"""Trace contexts, as W3C's Trace Context writes them in headers (``traceparent``, ``tracestate``);
which records without one get one; and the port to a collector of spans.

Which records are sampled is a function of their numbers or ids, so that a record that is read again
is chosen again, under the same trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
_FORM = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(-.*)?"
)
_NO_PARENT = "0" * 16
_STATE_CHARS = 512
"""The longest ``tracestate``: W3C requires no more, and a record carries it through every worker.
Longer ones are left out."""
_PARENT_CHARS = 256  # of a traceparent of a later version


class TraceContext(NamedTuple):
    """The trace that a record belongs to, and the span that it comes from."""

    parent: str
    """The text of ``traceparent``."""
    state: str = ""
    """The text of ``tracestate``."""

    @property
    def sampled(self) -> bool:
        """Whether the sender has asked for spans."""
        return bool(int(self.parent[53:55], 16) & 1)

    @property
    def begins(self) -> bool:
        """True for a trace that we begin: it has no span yet."""
        return self.parent[36:52] == _NO_PARENT

    @property
    def trace_id(self) -> int:
        """The id of the trace, 128 bits."""
        return int(self.parent[3:35], 16)


def context_of(parent: str | bytes | None, state: str | bytes | None = None) -> TraceContext | None:
    """The context in these headers; None when there is none, or ``parent`` is not a valid
    ``traceparent``."""
    text, more = _text(parent), _text(state)
    match = _FORM.fullmatch(text) if len(text) <= _PARENT_CHARS else None
    # Version 00 ends with its flags; only later versions may have more.
    if match is None or (match[2] is not None and text.startswith("00")):
        return None
    return TraceContext(text, more if len(more) <= _STATE_CHARS else "")


NOT_SAMPLED = TraceContext(f"00-{'f' * 32}-{'f' * 16}-00")
"""Stands for any context whose flag is not set."""


def declines(parent: bytes) -> bool:
    """Whether a look at its end shows that a ``traceparent`` does not ask for spans. Where every
    message has one, most do not, and :func:`context_of` takes four times as long."""
    return len(parent) == len(NOT_SAMPLED.parent) and parent.endswith(b"-00")


def new_trace(trace_id: int) -> TraceContext:
    """A sampled trace without a span."""
    return TraceContext(f"00-{trace_id:032x}-{_NO_PARENT}-01")


def _text(header: str | bytes | None) -> str:
    if header is None:
        return ""
    text = header if isinstance(header, str) else header.decode("latin-1")
    return text.strip() if text.isprintable() else ""


_SPACE = 1 << 64  # Fixed: values of a hash
_ODD, _MIX = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9  # Fixed: the constants of splitmix64


def chosen_numbers(sample: float, channel: str, numbers: npt.NDArray[np.int64]) -> list[int]:
    """The numbers of the records of a channel that are sampled."""
    if sample <= 0 or not len(numbers):
        return []
    if sample >= 1:
        return list(numbers.tolist())
    seed = np.uint64(xxhash.xxh3_64_intdigest(channel.encode()))
    # Mixed in an array: a hash of each number alone would take longer than to read a record in
    # columns.
    mixed = (numbers.astype(np.uint64) + seed) * np.uint64(_ODD)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(31)
    return list(numbers[mixed < np.uint64(int(sample * _SPACE))].tolist())


def is_chosen(sample: float, channel: str, identity: str) -> bool:
    """Whether a record with an id is sampled."""
    if sample <= 0:
        return False
    return sample >= 1 or xxhash.xxh3_64_intdigest(f"{channel}\0{identity}".encode()) < int(
        sample * _SPACE
    )


def trace_id(pipeline: str, channel: str, identity: int | str) -> int:
    """The id of a sampled record's trace."""
    return xxhash.xxh3_128_intdigest(f"{pipeline}\0{channel}\0{identity}".encode()) or 1


Attributes = Mapping[str, str | int | bool]


class SpanKind(Enum):
    """OpenTelemetry's kinds of spans, as far as they are used."""

    INTERNAL = "internal"
    CONSUMER = "consumer"
    PRODUCER = "producer"


class SpanCounts(NamedTuple):
    """The numbers of spans that have ended, of those that were dropped instead of sent, and of
    traced records that got none, because their bundle had too many."""

    ended: int
    dropped: int
    left_out: int


class TraceSpan(Protocol):
    """The span of a stage's work on a record."""

    @property
    def context(self) -> TraceContext:
        """The context of the records produced from it."""

    def note(self, name: str, fact: str | int | bool) -> None:
        """Set an attribute."""

    def fail(self, why: str) -> None:
        """Note that the work has failed."""

    def end(self, at_us: int) -> None:
        """End the span."""


class Spans(Protocol):
    """Begins spans. Never waits."""

    @property
    def begins_traces(self) -> bool:
        """Whether records without a context may begin a trace."""

    def begin(
        self, name: str, kind: SpanKind, parent: TraceContext, at_us: int, attributes: Attributes
    ) -> TraceSpan:
        """Begin a span below ``parent``. A span that never ends is never sent."""


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
