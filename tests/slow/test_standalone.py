"""Pipelines that spark-submit starts on a standalone cluster, which has nothing of ours but the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.slow import test_fluent as fluent
from tests.slow.runs import EXAMPLES, REPO, ads_events
from tests.slow.test_run import EVENTS, ads, assert_right

if TYPE_CHECKING:
    from tests.slow.standalone import StandaloneCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    from tests.slow.standalone import StandaloneCluster  # not while tests are looked for: it imports PySpark

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
    command += ["--set", f"input={events}", "--set", f"output={tmp_path / 'out'}", "--root", str(tmp_path / "root")]
    run = ads(tmp_path, events)
    run.code, run.said = 0, cluster.submit(package, command)
    assert_right(run, events)


@pytest.mark.long
def test_spark_submit_finds_lambdas_and_nested_functions_too(
    cluster: StandaloneCluster, package: Path, tmp_path: Path
) -> None:
    pipeline, lines = fluent.words(tmp_path, 300)
    command = [pipeline, "--set", f"input={tmp_path / 'in.jsonl'}", "--set", f"output={tmp_path / 'out'}"]
    cluster.submit(package, [*command, "--root", str(tmp_path / "root")])
    fluent.assert_right(tmp_path / "out", lines)
