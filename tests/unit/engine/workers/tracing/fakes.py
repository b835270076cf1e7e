"""Spans that are kept in a list."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from millwheel.core.pipeline.spec import TracingSpec
from millwheel.core.tracing import Attributes, SpanKind, TraceContext
from millwheel.engine.workers.tracing.tracing import Tracing

TRACE, OTHER = "a" * 32, "b" * 32
CONTEXT = TraceContext(f"00-{TRACE}-{'c' * 16}-01", "v=1")


@dataclass(slots=True)
class KeptSpan:
    name: str
    parent: str
    context: TraceContext
    began_us: int
    facts: dict[str, str | int | bool]
    ended_us: int = 0
    error: str = ""

    def note(self, name: str, fact: str | int | bool) -> None:
        self.facts[name] = fact

    def fail(self, why: str) -> None:
        self.error = why

    def end(self, at_us: int) -> None:
        self.ended_us = at_us


@dataclass(slots=True)
class KeptSpans:
    """``all`` are the spans that have begun."""

    all: list[KeptSpan] = field(default_factory=list)
    begins_traces: bool = True
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def begin(
        self, name: str, kind: SpanKind, parent: TraceContext, at_us: int, attributes: Attributes
    ) -> KeptSpan:
        context = TraceContext(
            f"00-{parent.trace_id:032x}-{next(self._numbers):016x}-01", parent.state
        )
        self.all.append(KeptSpan(name, parent.parent, context, at_us, dict(attributes)))
        return self.all[-1]

    def names(self) -> list[str]:
        return [span.name for span in self.all]


def tracing(spans: KeptSpans, sample: float = 0.0, keys: bool = False) -> Tracing:
    clock = count(1_000)
    return Tracing(TracingSpec(sample, keys), "p", "worker-0", spans, lambda: next(clock))
