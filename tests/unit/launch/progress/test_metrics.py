from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millwheel.adapters.metrics.client import fetched
from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.core.pipeline.graph import ClusterView, NodeView
from millwheel.launch.members import JoinedWorker
from millwheel.launch.progress.metrics import METRICS_FILE, GatheredMetrics


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint(
        "127.0.0.1:0", None, {"/metrics": lambda: b"# HELP x x\n# TYPE x gauge\nx 1.0\n"}
    )
    made.start()
    yield made
    made.close()


@pytest.fixture
def watcher() -> Any:
    return SimpleNamespace(members={}, services={}, latest=None)


@pytest.fixture
def gathered(tmp_path: Path, watcher: Any) -> Iterator[GatheredMetrics]:
    made = GatheredMetrics(
        "ads", ["worker-0", "worker-1"], watcher, lambda: {"worker 1": 3}, tmp_path
    )
    made.serve("127.0.0.1", 0, "")
    yield made
    made.close()
    assert not (tmp_path / METRICS_FILE).exists()


def test_the_driver_serves_the_metrics_of_all_and_says_who_did_not_answer(
    gathered: GatheredMetrics, watcher: Any, endpoint: Endpoint, tmp_path: Path
) -> None:
    watcher.members = {"w0-1": JoinedWorker(0, 1, endpoint.address)}
    gathered.step()
    [driver, worker] = json.loads((tmp_path / METRICS_FILE).read_text())
    assert worker == {
        "targets": [endpoint.address],
        "labels": {"millwheel_pipeline": "ads", "millwheel_process": "worker-0"},
    }
    text = fetched({"driver": driver["targets"][0]}, "/metrics", None)["driver"]
    assert "\nx 1.0\n" in text
    up = 'millwheel_process_up{{member="{}",pipeline="ads",process="driver"}} {}'
    for member, value in (("worker-0", 1.0), ("worker-1", 0.0), ("master", 0.0), ("injector", 0.0)):
        assert up.format(member, value) in text
    assert 'millwheel_restarts_total{member="worker-1",pipeline="ads",process="driver"} 3.0' in text


def test_a_worker_that_is_gone_is_expected_until_another_has_its_slot(
    gathered: GatheredMetrics, watcher: Any, tmp_path: Path
) -> None:
    def known() -> list[str]:
        gathered.step()
        return [
            each["targets"][0] for each in json.loads((tmp_path / METRICS_FILE).read_text())[1:]
        ]

    watcher.services["master"] = "127.0.0.1:7"
    watcher.members = {"w0-1": JoinedWorker(0, 1, "127.0.0.1:8")}
    assert known() == ["127.0.0.1:7", "127.0.0.1:8"]
    watcher.members = {}
    assert known() == ["127.0.0.1:7", "127.0.0.1:8"]
    watcher.members = {"w0-2": JoinedWorker(0, 2, "127.0.0.1:9")}
    assert known() == ["127.0.0.1:7", "127.0.0.1:9"]


def test_a_run_is_ready_once_all_processes_are_there_and_all_shards_have_reported(
    gathered: GatheredMetrics, watcher: Any
) -> None:
    def node(complete: bool) -> NodeView:
        return NodeView("clicks", 0, complete, "", {})

    assert gathered.ready() == "not there: master, injector, worker-0, worker-1"
    watcher.services |= {"master": "127.0.0.1:7", "injector": "127.0.0.1:8"}
    watcher.members = {f"w{slot}-1": JoinedWorker(slot, 1, "127.0.0.1:9") for slot in range(2)}
    assert gathered.ready() == "the injector has not answered yet"
    watcher.latest = ClusterView({"clicks": node(complete=False)})
    assert gathered.ready() == "shards have not reported: clicks"
    watcher.latest = ClusterView({"clicks": node(complete=True)})
    assert gathered.ready() == ""
    watcher.members = {}
    assert gathered.ready() == "not there: worker-0, worker-1"


def test_a_driver_whose_loop_stands_still_is_not_healthy(
    gathered: GatheredMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gathered.healthy() == ""
    later_s = time.monotonic() + 200
    monkeypatch.setattr("millwheel.launch.progress.metrics.time.monotonic", lambda: later_s)
    assert gathered.healthy() == "the driver's loop has stood still for 200 s"
    gathered.step()
    assert gathered.healthy() == ""
