"""Trace contexts, as W3C's Trace Context writes them in headers: ``traceparent`` and
``tracestate``."""

from __future__ import annotations

import re
from typing import NamedTuple

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
_FORM = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(-.*)?"
)
_NO_PARENT = "0" * 16
_STATE_CHARS = 512
"""A longer ``tracestate`` is left out: W3C asks for no more, and a record carries it through every
worker."""
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
    """Whether a ``traceparent`` does not ask for spans, as far as a look at its end tells. Where
    every message has one, most do not, and :func:`context_of` takes four times as long."""
    return len(parent) == len(NOT_SAMPLED.parent) and parent.endswith(b"-00")


def new_trace(trace_id: int) -> TraceContext:
    """A sampled trace without a span."""
    return TraceContext(f"00-{trace_id:032x}-{_NO_PARENT}-01")


def _text(header: str | bytes | None) -> str:
    if header is None:
        return ""
    text = header if isinstance(header, str) else header.decode("latin-1")
    return text.strip() if text.isprintable() else ""
