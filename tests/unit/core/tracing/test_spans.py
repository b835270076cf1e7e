"""Contexts where nobody collects spans."""

from __future__ import annotations

from millwheel.core.tracing.contexts import TraceContext
from millwheel.core.tracing.spans import NoSpans, SpanKind

CONTEXT = TraceContext(f"00-{'a' * 32}-{'b' * 16}-01", "v=1")


def test_without_a_collector_a_context_is_passed_on_as_it_came_and_none_begins() -> None:
    spans = NoSpans()
    span = spans.begin("count process", SpanKind.INTERNAL, CONTEXT, 1, {"a": 1})
    span.note("b", 2)
    span.fail("because")
    span.end(3)
    assert span.context == CONTEXT
    assert not spans.begins_traces
