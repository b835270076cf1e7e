"""Readings as Prometheus text, and the texts of several processes as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from millwheel.core.metrics import Figure, Histogram, MetricKind

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text_of(figures: Iterable[Figure], added: Mapping[str, str]) -> bytes:
    """The figures, and figures of this process itself, each with the labels ``added``."""
    from prometheus_client import generate_latest  # not before the first request: it takes 50 ms

    return generate_latest(_Collected([*_families(figures), *_of_the_process()], added))


class _Collected:
    """A registry of the library, which uses just one method of it."""

    def __init__(self, families: Iterable[Family], added: Mapping[str, str]) -> None:
        self._families = families
        self._added = added

    def collect(self) -> Iterator[Family]:
        """The families, with the labels of this process."""
        for family in self._families:
            family.samples = [
                sample._replace(labels={**sample.labels, **self._added})
                for sample in family.samples
            ]
            yield family


def _families(figures: Iterable[Figure]) -> list[Family]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    classes = {
        MetricKind.COUNTER: CounterMetricFamily,
        MetricKind.GAUGE: GaugeMetricFamily,
        MetricKind.HISTOGRAM: HistogramMetricFamily,
    }
    families: dict[str, Any] = {}
    for each in figures:
        metric = each.metric
        family = families.get(metric.name)
        if family is None:
            family = families[metric.name] = classes[metric.kind](
                metric.name, metric.meaning, labels=metric.labels
            )
        if isinstance(each.value, Histogram):
            family.add_metric(
                each.values, buckets=_buckets(each.value), sum_value=each.value.total_s
            )
        else:
            family.add_metric(each.values, each.value)
    return list(families.values())


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*(str(float(bound)) for bound in histogram.bounds), "+Inf"]
    return list(zip(bounds, map(float, histogram.cumulated()), strict=True))


def _of_the_process() -> list[Family]:
    from prometheus_client import ProcessCollector

    return list(ProcessCollector(registry=None).collect())


def merged(texts: Iterable[str]) -> str:
    """Texts of several processes as one: each family once, with the samples of all of them."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for text in texts:
        name = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                head = heads.setdefault(name, [])
                samples.setdefault(name, [])
                fresh = not head
            if line.startswith("#"):
                head += [line] if fresh else []
            elif line:
                samples[name].append(line)
    return "".join(f"{line}\n" for name in heads for line in [*heads[name], *samples[name]])
