"""The catalogue of metrics: its names keep to the conventions, and the page has all of them."""

from __future__ import annotations

import ast
import re

from millwheel.core import metrics as catalogue
from millwheel.core.metrics import Histogram, Metric, MetricKind
from tests import metrics, rooms

ALL = [metric for each in catalogue.OF_PROCESS.values() for metric in each]


def test_the_site_has_every_metric() -> None:
    assert metrics.PLACE in metrics.PAGE.read_text(encoding="utf-8")
    text = metrics.tables()
    assert all(f"| `{metric.name}`" in text for metric in ALL)


def test_every_metric_that_is_declared_belongs_to_a_process_and_is_used() -> None:
    declared = {name: value for name, value in vars(catalogue).items() if isinstance(value, Metric)}
    assert set(declared.values()) == set(ALL)
    words = {
        word
        for path in rooms.modules().values()
        if path != rooms.PACKAGE / "core/metrics.py"
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    }
    assert not declared.keys() - words


def test_names_and_units_keep_to_the_conventions() -> None:
    for metric in ALL:
        assert re.fullmatch(r"millwheel(_[a-z]+)+", metric.name)
        assert (metric.kind is MetricKind.COUNTER) == metric.name.endswith("_total")
        assert metric.kind is not MetricKind.HISTOGRAM or metric.name.endswith("_seconds")
        assert not metric.name.endswith(("_ms", "_us", "_count", "_sum", "_bucket"))
        assert not set(metric.labels) & {"pipeline", "process", "le", "job", "instance"}
    assert len({metric.name for metric in ALL}) == len(ALL)


def test_the_catalogue_is_data() -> None:
    tree = ast.parse((rooms.PACKAGE / "core/metrics.py").read_text(encoding="utf-8"))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert functions == ["_counter", "_gauge", "_histogram"]


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value_s in (0.5, 1.0, 1.5, 7.0):
        histogram.add(value_s)
    assert histogram.cumulated() == [2, 3, 4]
    assert (histogram.count, histogram.total_s) == (4, 10.0)
