"""A real Prometheus scrapes a run, and an alert fires when a worker is stopped."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from urllib.parse import quote

import pytest

from tests.servers.prometheus import Prometheus, program, running
from tests.slow.runs import REPO, Run

pytestmark = pytest.mark.slow

RULES = REPO / "deploy" / "observability" / "millwheel.rules.yml"
PIPELINE = """
    pipeline: measured
    streams:
      hits:
        source: {generator: {rate: 500, keys: 20, partitions: 2}}
    computations:
      counts: {input: {hits: {key: key}}, window: {tumbling: 1s}, aggregate: {hits: count},
        output: counts}
    sinks:
      counts: {files: {path: out/counts, format: jsonl}}
"""
FILE_SD = """
    global: {scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 250ms}
    rule_files: [rules.yml]
    scrape_configs:
      - job_name: millwheel
        file_sd_configs: [{files: [METRICS], refresh_interval: 1s}]
        relabel_configs: [{source_labels: [millwheel_process], regex: driver, action: keep}]
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    (tmp_path / "p.yaml").write_text(dedent(PIPELINE))
    made = Run(tmp_path / "p.yaml", tmp_path).start()
    yield made
    made.end()
    made.wait()


@pytest.fixture
def prometheus(tmp_path: Path, run: Run) -> Iterator[Prometheus]:
    config = dedent(FILE_SD).replace("METRICS", str(run.root / "metrics.json"))
    (tmp_path / "prometheus.yml").write_text(config)
    # The rules as they are, but for their patience.
    (tmp_path / "rules.yml").write_text(re.sub(r"for: \d+[sm]", "for: 0s", RULES.read_text()))
    yield from running(tmp_path)


def test_prometheus_scrapes_a_run_and_an_alert_fires_when_a_worker_is_stopped(
    run: Run, prometheus: Prometheus
) -> None:
    by_node = f"query?query={quote('sum by (computation) (millwheel_records_in_total)')}"

    def read(answer: dict[str, list[dict[str, dict[str, str]]]]) -> bool:
        return {"source.hits", "counts", "sink.counts"} <= {
            each["metric"]["computation"] for each in answer["result"]
        }

    prometheus.until(by_node, read)
    up = f"query?query={quote('sum(millwheel_process_up)')}"
    prometheus.until(up, lambda answer: answer["result"][0]["value"][1] == "4")
    assert not prometheus.ask("targets")["activeTargets"][0]["lastError"]
    stopped = run.processes("millwheel.engine.workers")[0]
    stopped.send_signal(signal.SIGSTOP)

    def fires(answer: dict[str, list[dict[str, dict[str, str]]]]) -> bool:
        return any(
            alert["labels"]["alertname"] == "MillwheelProcessDown"
            and alert["labels"]["member"].startswith("worker-")
            for alert in answer["alerts"]
        )

    prometheus.until("alerts", fires)
    stopped.send_signal(signal.SIGKILL)
    prometheus.until(up, lambda answer: answer["result"][0]["value"][1] == "4")
    restarts = f"query?query={quote('sum(millwheel_restarts_total)')}"
    prometheus.until(restarts, lambda answer: float(answer["result"][0]["value"][1]) >= 1)


def test_promtool_accepts_the_rules_the_configuration_and_the_text_of_a_run(run: Run) -> None:
    folder, promtool = RULES.parent, program("promtool")
    tests = str(folder / "millwheel.rules.test.yml")
    for words in (["test", "rules", tests], ["check", "config", str(folder / "prometheus.yml")]):
        done = subprocess.run([promtool, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    deadline_s = time.monotonic() + 60
    while not (run.root / "metrics.json").exists() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    address = json.loads((run.root / "metrics.json").read_text())[0]["targets"][0]
    script = f"curl -sf http://{address}/metrics | {promtool} check metrics"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
