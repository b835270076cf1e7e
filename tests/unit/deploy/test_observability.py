"""Dashboard and alert rules ask for metrics and labels that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from millwheel.core.metrics import DISK_USED, HEALTH, MEMORY_USED, OF_PROCESS, MetricKind
from tests import rooms

FOLDER = rooms.HOUSE / "deploy" / "observability"
METRICS = {metric.name: metric for each in OF_PROCESS.values() for metric in each}
_NAME = re.compile(r"\b(millwheel_[a-z_]+)(?:\{([^}]*)\})?")


def expressions(path: Path) -> list[str]:
    if path.suffix == ".json":
        panels = json.loads(path.read_text())["panels"]
        return [target["expr"] for panel in panels for target in panel["targets"]]
    groups = YAML(typ="safe").load(path.read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("name", ["dashboard.json", "millwheel.rules.yml"])
def test_every_query_asks_for_a_metric_and_labels_that_there_are(name: str) -> None:
    found = [match for query in expressions(FOLDER / name) for match in _NAME.findall(query)]
    assert len(found) > 8
    for each, selector in found:
        metric = METRICS.get(each) or METRICS.get(each.removesuffix("_bucket"))
        assert metric is not None, each
        assert each == metric.name or metric.kind is MetricKind.HISTOGRAM
        labels = set(re.findall(r"(\w+)=~?\"", selector))
        assert labels <= {*metric.labels, "pipeline", "process"}, (each, labels)


def test_every_panel_has_a_place_of_its_own() -> None:
    indexes = [
        panel["gridPos"] for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    ]
    corners = {(index["x"], index["y"]) for index in indexes}
    assert len(corners) == len(indexes)
    assert all(index["x"] + index["w"] <= 24 for index in indexes)


def test_the_health_of_each_worker_and_its_measures_have_a_panel() -> None:
    queries = " ".join(expressions(FOLDER / "dashboard.json"))
    for metric in (HEALTH, MEMORY_USED, DISK_USED):
        assert re.search(rf"by \(process\) \({metric.name}{{", queries), metric.name


def test_the_page_names_every_alert() -> None:
    text = (FOLDER / "README.md").read_text()
    rules = YAML(typ="safe").load((FOLDER / "millwheel.rules.yml").read_text())["groups"][0][
        "rules"
    ]
    assert set(re.findall(r"\| `(Millwheel\w+)` \|", text)) == {rule["alert"] for rule in rules}
