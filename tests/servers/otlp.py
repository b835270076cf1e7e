"""A receiver of spans by OTLP over HTTP, on loopback, in this process."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it came. ``parent`` is "" for a root."""

    trace: str
    span: str
    parent: str
    name: str
    attributes: dict[str, Any]
    begins_ns: int
    ends_ns: int
    failed: bool
    process: str


@dataclass(slots=True)
class Collector:
    """``endpoint`` is for ``OTEL_EXPORTER_OTLP_ENDPOINT``. Answers with ``status``."""

    endpoint: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    status: int = 200

    def until(
        self, enough: Callable[[list[ReceivedSpan]], bool], timeout_s: float = 60
    ) -> list[ReceivedSpan]:
        """The spans, once they are enough, or after a while."""
        deadline_s = time.monotonic() + timeout_s
        while not enough(self.spans) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        return list(self.spans)


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector that takes spans, and ignores metrics."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = Collector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            found.paths.add(self.path)
            if found.status == 200 and self.path == "/v1/traces":
                found.spans.extend(_spans(ExportTraceServiceRequest.FromString(data)))
            self.send_response(found.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _spans(request: Any) -> Iterator[ReceivedSpan]:
    for resource in request.resource_spans:
        facts = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for each in scope.spans:
                yield ReceivedSpan(
                    each.trace_id.hex(),
                    each.span_id.hex(),
                    each.parent_span_id.hex(),
                    each.name,
                    _attributes(each.attributes),
                    each.start_time_unix_nano,
                    each.end_time_unix_nano,
                    each.status.code == 2,
                    facts["service.instance.id"],
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
