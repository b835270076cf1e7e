"""Spans to an OpenTelemetry collector, by OTLP over HTTP: the extra ``otlp``, configured by
OpenTelemetry's own environment variables, as metrics are."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from typing import Any

from millwheel.core.tracing import (
    TRACEPARENT,
    TRACESTATE,
    Attributes,
    SpanKind,
    TraceContext,
    TraceSpan,
)
from millwheel.errors import SetupError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_LAST_S = 5.0  # for the last spans of a worker, whose end waits for them
_QUEUED, _PAUSE_MS, _BATCH = 2_048, 5_000, 512  # Fixed: OpenTelemetry's defaults
_log = logging.getLogger("millwheel.tracing")


def configured() -> bool:
    """Whether the environment names a collector of traces."""
    off = (
        os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    )
    return not off and any(os.environ.get(name) for name in ENDPOINTS)


class OtlpSpans:
    """See :class:`millwheel.core.tracing.Spans`. Spans are sent on a thread of their own; spans
    that do not fit into its queue are dropped and counted, and nothing waits. For one thread but
    for :meth:`counts`.

    Raises SetupError when the extra is missing.
    """

    begins_traces = True

    def __init__(self, pipeline: str, worker: str) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise SetupError(
                f"{ENDPOINTS[1]} is set and the pipeline has tracing:, so spans go there by"
                " OpenTelemetry: pip install 'millwheel-spark[otlp]', or unset it"
            ) from None
        facts = {"service.namespace": pipeline, "service.instance.id": worker}
        resource = Resource.create(
            {"service.name": os.environ.get("OTEL_SERVICE_NAME") or "millwheel", **facts}
        )
        self._queue = SpanQueue(OTLPSpanExporter())
        self._ids = _ids()
        provider = TracerProvider(
            ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=self._ids
        )
        provider.add_span_processor(self._queue.processor())
        self._tracer = provider.get_tracer("millwheel")
        self._kinds = {kind: trace.SpanKind[kind.name] for kind in SpanKind}
        self._propagator = TraceContextTextMapPropagator()
        self._in_context = trace.set_span_in_context

    def begin(
        self, name: str, kind: SpanKind, parent: TraceContext, at_us: int, attributes: Attributes
    ) -> TraceSpan:
        """See :class:`millwheel.core.tracing.Spans`."""
        from opentelemetry.context import Context

        context = Context()
        if parent.begins:
            self._ids.next_trace_id = parent.trace_id
        else:
            headers = {TRACEPARENT: parent.parent, TRACESTATE: parent.state}
            context = self._propagator.extract(headers, context)
        kinds = self._kinds[kind]
        span = self._tracer.start_span(name, context, kinds, start_time=at_us * 1_000)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._in_context(span))
        span_context = TraceContext(
            carrier.get(TRACEPARENT, parent.parent), carrier.get(TRACESTATE, "")
        )
        return _OtlpSpan(span, span_context, dict(attributes))

    def counts(self) -> tuple[int, int]:
        """The numbers of spans that have ended, and of dropped ones among them."""
        return self._queue.ended, self._queue.dropped

    def close(self) -> None:
        """Send the queued spans, and end."""
        self._queue.close()


class _OtlpSpan:
    __slots__ = ("_facts", "_span", "context")

    def __init__(
        self, span: Any, context: TraceContext, facts: dict[str, str | int | bool]
    ) -> None:
        self._span = span
        self._facts = facts
        self.context = context

    def note(self, name: str, fact: str | int | bool) -> None:
        self._facts[name] = fact

    def fail(self, why: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_status(Status(StatusCode.ERROR, why))

    def end(self, at_us: int) -> None:
        self._span.set_attributes(self._facts)  # together: one by one they take twice as long
        self._span.end(at_us * 1_000)


def _ids() -> Any:
    """Random ids, but for traces that we begin: a record that is read again begins the same one."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class _Ids(RandomIdGenerator):
        next_trace_id = 0

        def generate_trace_id(self) -> int:
            chosen, self.next_trace_id = self.next_trace_id, 0
            return chosen or super().generate_trace_id()

    return _Ids()


class SpanQueue:
    """Sends ended spans in batches, on a thread that begins with the first. OpenTelemetry's own
    processor drops the oldest spans and counts none."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self._most = _number("OTEL_BSP_MAX_QUEUE_SIZE", _QUEUED)
        self._pause_s = _number("OTEL_BSP_SCHEDULE_DELAY", _PAUSE_MS) / 1_000
        self._batch = min(_number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", _BATCH), self._most)
        self._waiting: deque[Any] = deque()
        self._full = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._follow, daemon=True, name="spans")
        self.ended = self.dropped = 0

    def processor(self) -> Any:
        """The processor that the library calls."""
        from opentelemetry.sdk.trace import SpanProcessor

        queue = self

        class _Processor(SpanProcessor):
            def on_end(self, span: Any) -> None:
                queue.put(span)

        return _Processor()

    def put(self, span: Any) -> None:
        """A span has ended. Never waits."""
        self.ended += 1
        if len(self._waiting) >= self._most:
            self.dropped += 1
            return
        self._waiting.append(span)
        if not self._thread.ident:
            self._thread.start()
        if len(self._waiting) >= self._batch:
            self._full.set()

    def close(self) -> None:
        """Send the queued spans, and end; within a few seconds."""
        self._closed = True
        self._full.set()
        if self._thread.ident:
            self._thread.join(_LAST_S)

    def _follow(self) -> None:
        while not self._closed:
            self._full.wait(self._pause_s)
            self._full.clear()
            while self._waiting:
                self._send(
                    [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]
                )
        self._exporter.shutdown()

    def _send(self, spans: list[Any]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            sent = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception:  # the next spans may go through
            _log.exception("spans could not be sent by OTLP")
            sent = False
        self.dropped += 0 if sent else len(spans)


def _number(name: str, default: int) -> int:
    """The number in a variable. Raises SetupError unless it is above zero."""
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or not int(text):
        raise SetupError(f"{name} is {text!r}: write a whole number, such as {default}")
    return int(text)
