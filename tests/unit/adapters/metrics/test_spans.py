"""Spans on their way to a collector."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from millwheel.adapters.metrics import spans as module
from millwheel.adapters.metrics.spans import OtlpSpans, SpanQueue, configured
from millwheel.core.tracing import SpanKind, TraceContext, context_of, new_trace
from millwheel.errors import SetupError
from tests.servers.otlp import Collector, collector

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = TraceContext(f"00-{TRACE}-{PARENT}-01", "v=1")


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        yield found


def test_a_span_comes_with_its_parent_times_and_attributes_and_so_does_one_below_it(
    received: Collector,
) -> None:
    assert configured()
    spans = OtlpSpans("clicks", "worker-0")
    above = spans.begin(
        "count process", SpanKind.INTERNAL, CONTEXT, 1_000, {"millwheel.shard": "count-0"}
    )
    assert above.context.state == "v=1"
    below = spans.begin("sink.out publish", SpanKind.PRODUCER, above.context, 2_000, {})
    below.fail("the target is away")
    below.end(3_000)
    above.note("millwheel.commit", 7)
    above.end(4_000)
    spans.close()
    assert received.paths == {"/v1/traces"}
    first, second = sorted(received.spans, key=lambda span: span.begins_ns)
    assert (first.trace, first.parent, first.name, first.process) == (
        TRACE,
        PARENT,
        "count process",
        "worker-0",
    )
    assert (first.begins_ns, first.ends_ns) == (1_000_000, 4_000_000)
    assert first.attributes == {"millwheel.shard": "count-0", "millwheel.commit": 7}
    assert (second.trace, second.parent, second.failed, first.failed) == (
        TRACE,
        first.span,
        True,
        False,
    )
    assert context_of(above.context.parent) == TraceContext(f"00-{TRACE}-{first.span}-01")
    assert spans.counts() == (2, 0)


def test_a_trace_that_begins_has_the_id_that_was_asked_for_and_the_next_one_its_own(
    received: Collector,
) -> None:
    spans = OtlpSpans("clicks", "worker-0")
    for trace_id in (7, 8):
        spans.begin("source.hits read", SpanKind.CONSUMER, new_trace(trace_id), 1, {}).end(2)
    spans.close()
    assert sorted((span.trace, span.parent) for span in received.spans) == [
        (f"{7:032x}", ""),
        (f"{8:032x}", ""),
    ]


def test_spans_are_sent_while_the_worker_goes_on(
    received: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    spans = OtlpSpans("clicks", "worker-0")
    spans.begin("a", SpanKind.INTERNAL, CONTEXT, 1, {}).end(2)
    assert received.until(bool)
    spans.close()


def test_a_collector_that_refuses_costs_spans_which_are_counted(received: Collector) -> None:
    received.status = 400
    spans = OtlpSpans("clicks", "worker-0")
    spans.begin("a", SpanKind.INTERNAL, CONTEXT, 1, {}).end(2)
    spans.close()
    assert spans.counts() == (1, 1)


class Held:
    """An exporter that hangs until it may go on."""

    def __init__(self) -> None:
        self.go, self.began = threading.Event(), threading.Event()
        self.sizes: list[int] = []

    def export(self, spans: list[Any]) -> Any:
        from opentelemetry.sdk.trace.export import SpanExportResult

        self.began.set()
        self.go.wait(20)
        self.sizes.append(len(spans))
        if len(self.sizes) == 1:
            raise OSError("gone")
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.go.set()


def test_a_collector_that_hangs_stops_nobody_and_what_does_not_fit_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "3")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setattr(module, "_LAST_S", 0.01)
    held = Held()
    queue = SpanQueue(held)
    queue.put("first")
    assert held.began.wait(20)
    for number in range(5):
        queue.put(number)
    assert (queue.ended, queue.dropped) == (6, 2)
    queue.close()  # returns although the exporter does not
    held.go.set()
    deadline_s = time.monotonic() + 60
    while len(held.sizes) < 2 and time.monotonic() < deadline_s:
        time.sleep(0.005)
    assert held.sizes == [1, 3]
    assert queue.dropped == 3, "what was on its way when the exporter failed is lost"


@pytest.mark.parametrize("text", ["x", "0", "-5"])
def test_a_setting_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", text)
    with pytest.raises(SetupError, match="write a whole number, such as 2048"):
        SpanQueue(None)


def test_nothing_is_sent_unless_the_environment_names_a_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in module.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert not configured()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1")
    assert configured()
    for name, value in (("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")):
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            assert not configured()
