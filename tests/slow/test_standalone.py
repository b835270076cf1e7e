"""Pipelines that spark-submit starts on a standalone cluster, which has nothing of ours but the
package."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.slow import test_fluent as fluent
from tests.slow.runs import EXAMPLES, REPO, Run, ads_events
from tests.slow.test_run import EVENTS, ads, assert_right
from tests.unit.launch.helpers import eventually

if TYPE_CHECKING:
    from tests.slow.standalone import StandaloneCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    # not while tests are looked for: it imports PySpark
    from tests.slow.standalone import StandaloneCluster

    with StandaloneCluster(tmp_path_factory.mktemp("standalone") / "cluster", workers=2) as made:
        yield made


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("package") / "millwheel.zip"
    subprocess.run([sys.executable, str(REPO / "deploy" / "make_zip.py"), str(made)], check=True)
    return made


def test_spark_submit_on_a_standalone_cluster_gives_the_same_rows(
    cluster: StandaloneCluster, package: Path, tmp_path: Path
) -> None:
    events = ads_events(tmp_path, EVENTS)
    command = [str(EXAMPLES / "ads" / "pipeline.yaml"), "--summary", str(tmp_path / "summary.json")]
    command += [
        "--set",
        f"input={events}",
        "--set",
        f"output={tmp_path / 'out'}",
        "--root",
        str(tmp_path / "root"),
    ]
    run = ads(tmp_path, events)
    run.code, run.said = 0, cluster.submit(package, command)
    assert_right(run, events)


@pytest.mark.long
def test_spark_submit_finds_lambdas_and_nested_functions_too(
    cluster: StandaloneCluster, package: Path, tmp_path: Path
) -> None:
    pipeline, lines = fluent.words(tmp_path, 300)
    command = [
        pipeline,
        "--set",
        f"input={tmp_path / 'in.jsonl'}",
        "--set",
        f"output={tmp_path / 'out'}",
    ]
    cluster.submit(package, [*command, "--root", str(tmp_path / "root")])
    fluent.assert_right(tmp_path / "out", lines)


ENDLESS = """
pipeline: endless
streams:
  ticks: {source: {generator: {rate: 100, keys: 9}}, timestamp: ts}
computations:
  counts: {input: {ticks: {key: key}}, window: {tumbling: 1s}, aggregate: {n: count},
    output: counts}
sinks:
  counts: {files: {path: "${output}", roll: {every: 1h}}}
"""


def endless(cluster: StandaloneCluster, folder: Path, workers: int) -> Run:
    folder.mkdir()
    (folder / "endless.yaml").write_text(ENDLESS)
    more = ("--spark-master", cluster.url, "--conf", "spark.ui.enabled=false")
    output = {"output": str(folder / "out")}
    return Run(
        folder / "endless.yaml", folder, output, launcher="spark", workers=workers, more=more
    ).start()


def executors_of(root: Path) -> dict[int, int]:
    """The executor of each worker of a run, by their process ids."""
    found = {}
    for process in psutil.process_iter():
        try:
            if "millwheel.engine.workers" in process.cmdline() and str(root) in process.cmdline():
                above = (
                    each
                    for each in process.parents()
                    if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline())
                )
                found[process.pid] = next(above).pid
        except (psutil.Error, StopIteration):
            continue
    return found


@pytest.mark.long
def test_workers_lie_apart_and_a_run_that_finds_no_core_says_so(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    first = endless(cluster, tmp_path / "first", 2)
    eventually(lambda: len(executors_of(first.root)) == 2, 240)
    assert len({*executors_of(first.root).values()}) == 2
    second = endless(cluster, tmp_path / "second", 1)
    told: list[str] = []

    def tells() -> bool:
        command = [sys.executable, "-m", "millwheel", "status", str(second.root), "--json"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        told[:] = (
            [wait["why"] for wait in json.loads(answer)["waits"]] if answer.startswith("{") else []
        )
        return bool(told)

    eventually(tells, 240)
    for run in (second, first):
        run.end()
        run.wait()
    assert told[0].startswith(
        f"Spark has given 0 of 1 workers a core: no machine of {cluster.url} has 1 core and 512m"
    )
