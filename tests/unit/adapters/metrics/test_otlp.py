from __future__ import annotations

import builtins
import gzip
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from millwheel.adapters.metrics import otlp
from millwheel.adapters.metrics.otlp import OtlpMetrics, configured
from millwheel.adapters.metrics.spans import OtlpSpans
from millwheel.errors import SetupError

TEXT = b"""\
# HELP millwheel_records_in_total Records.
# TYPE millwheel_records_in_total counter
millwheel_records_in_total{computation="c",shard="c-0"} 7.0
# HELP millwheel_state_bytes State.
# TYPE millwheel_state_bytes gauge
millwheel_state_bytes{shard="c-0"} 512.0
# HELP millwheel_commit_seconds Commits.
# TYPE millwheel_commit_seconds histogram
millwheel_commit_seconds_bucket{le="0.1"} 3.0
millwheel_commit_seconds_bucket{le="1.0"} 5.0
millwheel_commit_seconds_bucket{le="+Inf"} 6.0
millwheel_commit_seconds_count 6.0
millwheel_commit_seconds_sum 4.5
"""


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A small OTLP receiver on loopback: the metrics of each request."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    found: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            found.append(
                (
                    self.path,
                    ExportMetricsServiceRequest.FromString(
                        gzip.decompress(data) if packed else data
                    ),
                )
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_receiver_gets_all_metrics_under_their_names_and_units(received: list[Any]) -> None:
    assert configured()
    export = OtlpMetrics(lambda: TEXT, "clicks")
    export.start()
    export.close()  # sends once more
    [(path, request)] = received
    assert path == "/v1/metrics"
    [resource] = request.resource_metrics
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (attributes["service.name"], attributes["service.namespace"]) == ("millwheel", "clicks")
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert {name: metric.unit for name, metric in metrics.items()} == {
        "millwheel.records_in": "1", "millwheel.state": "By", "millwheel.commit": "s"
    }  # fmt: skip
    [point] = metrics["millwheel.records_in"].sum.data_points
    assert (point.as_double, metrics["millwheel.records_in"].sum.is_monotonic) == (7.0, True)
    assert {each.key: each.value.string_value for each in point.attributes} == {
        "computation": "c",
        "shard": "c-0",
    }
    [histogram] = metrics["millwheel.commit"].histogram.data_points
    assert (list(histogram.bucket_counts), list(histogram.explicit_bounds)) == (
        [3, 2, 1],
        [0.1, 1.0],
    )
    assert (histogram.count, histogram.sum) == (6, 4.5)


def test_nothing_is_sent_unless_the_environment_names_a_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert not configured()


@pytest.mark.parametrize(
    "make", [lambda: OtlpMetrics(lambda: b"", "p"), lambda: OtlpSpans("p", "worker-0")]
)
def test_a_plain_install_is_told_what_is_missing(
    make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = builtins.__import__

    def lacking(name: str, *more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return plain(name, *more)

    monkeypatch.setattr(builtins, "__import__", lacking)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[otlp\]'"):
        make()


@pytest.mark.parametrize("text", ["x", "0", "-5", "1.5"])
def test_an_interval_that_is_none_is_refused(
    text: str, received: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", text)
    with pytest.raises(SetupError, match="write milliseconds"):
        OtlpMetrics(lambda: TEXT, "p")


def test_what_cannot_be_sent_once_does_not_end_the_export(
    received: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1")
    pages = iter([b"millwheel_x{ 1", TEXT])
    sent = OtlpMetrics(lambda: next(pages, TEXT), "p")
    sent.start()
    deadline_s = time.monotonic() + 60
    while not received and time.monotonic() < deadline_s:
        time.sleep(0.01)
    sent.close()
    assert received


def test_a_collector_that_hangs_does_not_keep_a_run_from_its_end(
    received: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(otlp, "_LAST_S", 0.05)
    sent = OtlpMetrics(lambda: (go.wait(20) and TEXT) or TEXT, "p")
    sent.start()
    sent.close()  # returns although the page does not
    go.set()
