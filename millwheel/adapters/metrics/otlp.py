"""Metrics to an OpenTelemetry collector, by OTLP over HTTP: the extra ``otlp``, configured by
OpenTelemetry's own environment variables (``OTEL_EXPORTER_OTLP_ENDPOINT`` and its relatives)."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from millwheel.errors import SetupError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_INTERVAL_MS = 60_000  # Fixed: OpenTelemetry's default
_LAST_S = 5.0  # for the last points of a run, whose end waits for them
_log = logging.getLogger("millwheel.metrics")
_UNITS = {"_seconds": "s", "_bytes": "By"}


def configured() -> bool:
    """Whether the environment names a collector."""
    return any(os.environ.get(name) for name in ENDPOINTS)


class OtlpMetrics:
    """Sends the figures of ``page`` (Prometheus text) now and then, on a thread of its own, and
    once more at its end. A collector that is away misses some points, and nothing waits for it.

    Raises SetupError when the extra is missing.
    """

    def __init__(self, page: Callable[[], bytes], pipeline: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        except ImportError:
            raise SetupError(
                f"{ENDPOINTS[1]} is set, and metrics go there by OpenTelemetry: pip install "
                "'millwheel-spark[otlp]', or unset it"
            ) from None
        self._pause_s = _pause_s(os.environ.get(INTERVAL, ""))
        self._page = page
        self._pipeline = pipeline
        self._exporter = OTLPMetricExporter()
        self._began_ns = time.time_ns()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="otlp")

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self) -> None:
        """Send the current figures, and end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_S)
        self._exporter.shutdown()

    def send(self) -> None:
        """Send all metrics as they are now."""
        self._exporter.export(
            metrics_data(self._page().decode(), self._pipeline, self._began_ns, time.time_ns())
        )

    def _follow(self) -> None:
        while not self._stop.wait(self._pause_s):
            self._try()
        self._try()

    def _try(self) -> None:
        try:
            self.send()
        except Exception:  # the next points may go through
            _log.exception("metrics could not be sent by OTLP")


def _pause_s(text: str) -> float:
    """The pause that the text gives. Raises SetupError for a text that is not an interval."""
    try:
        found_ms = int(text) if text else _INTERVAL_MS
        if found_ms > 0:
            return found_ms / 1_000
    except ValueError:
        pass
    raise SetupError(f"{INTERVAL} is {text!r}: write milliseconds, such as {_INTERVAL_MS}")


def metrics_data(text: str, pipeline: str, began_ns: int, now_ns: int) -> Any:
    """Prometheus text as OpenTelemetry's metrics. Names get dots and lose their units:
    ``millwheel_commit_seconds`` is ``millwheel.commit`` in ``s``."""
    from opentelemetry.sdk.metrics.export import Metric, MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from prometheus_client.parser import text_string_to_metric_families

    metrics = []
    for family in text_string_to_metric_families(text):
        name, unit = _named(family.name)
        data = _data(family.type, family.samples, began_ns, now_ns)
        if data is not None:
            metrics.append(Metric(name, family.documentation, unit, data))
    scope = ScopeMetrics(InstrumentationScope("millwheel"), metrics, "")
    attributes = {"service.name": "millwheel", "service.namespace": pipeline}
    resource = Resource.create({**attributes, **_given_attributes()})
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _given_attributes() -> Mapping[str, str]:
    """A service name that the user sets wins."""
    name = os.environ.get("OTEL_SERVICE_NAME")
    return {"service.name": name} if name else {}


def _named(name: str) -> tuple[str, str]:
    unit = next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "1")
    plain = re.sub("(_seconds|_bytes)$", "", name)
    return re.sub("^(millwheel|process)_", r"\1.", plain), unit


def _data(kind: str, samples: Iterable[Any], began_ns: int, now_ns: int) -> Any:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        NumberDataPoint,
        Sum,
    )

    if kind == "histogram":
        return Histogram(
            list(_histograms(samples, began_ns, now_ns)), AggregationTemporality.CUMULATIVE
        )
    points = [
        NumberDataPoint(dict(sample.labels), began_ns, now_ns, sample.value)
        for sample in samples
        if not sample.name.endswith("_created")
    ]
    if kind == "counter":
        return Sum(points, AggregationTemporality.CUMULATIVE, True)
    return Gauge(points) if kind == "gauge" else None


def _histograms(samples: Iterable[Any], began_ns: int, now_ns: int) -> Iterator[Any]:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    groups: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in samples:
        labels = tuple(
            sorted((name, value) for name, value in sample.labels.items() if name != "le")
        )
        group = groups.setdefault(labels, {"upto": [], "sum": 0.0})
        if sample.name.endswith("_bucket"):
            group["upto"].append((float(sample.labels["le"]), int(sample.value)))
        elif sample.name.endswith("_sum"):
            group["sum"] = sample.value
    for labels, group in groups.items():
        upto = sorted(group["upto"])
        counts = [
            count - before
            for (_, count), before in zip(upto, [0, *(count for _, count in upto)], strict=False)
        ]
        bounds = [edge for edge, _ in upto[:-1]]
        total = upto[-1][1] if upto else 0
        yield HistogramDataPoint(
            dict(labels), began_ns, now_ns, total, group["sum"], counts, bounds, 0.0, 0.0
        )
