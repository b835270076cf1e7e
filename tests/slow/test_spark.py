"""The Spark launcher on a real local cluster, with a stand-in for the worker: every process of the
chain is killed."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from millwheel.launch.launchers.base import WorkerExit
from millwheel.launch.launchers.spark.class_archive import archive_of
from millwheel.launch.launchers.spark.context import installed_jars
from millwheel.launch.launchers.spark.launcher import SparkLauncher
from millwheel.launch.launchers.spark.settings import SparkSettings
from millwheel.launch.progress.summary import Summary
from millwheel.python.handles.tables import RunResult, StreamFiles
from tests.slow.runs import EXAMPLES, ads_events
from tests.unit.launch.helpers import eventually, lives, template, write_worker

pytestmark = pytest.mark.slow

REPO = Path(__file__).parents[2]


class Cluster:
    """Two slots on a local cluster, started again by us as the driver would."""

    def __init__(self, folder: Path, module: str) -> None:
        self.folder = folder
        self.exits: list[WorkerExit] = []
        self.given = template(folder, module)
        settings = SparkSettings(
            "", 2, "test", str(folder / "scratch"), str(folder / "logs" / "spark.log")
        )
        self.launcher = SparkLauncher(self.given, settings, str(folder / "stop"))
        for slot in (0, 1):
            self.launcher.start(slot)
        self.until(lambda: lives(folder, 0) and lives(folder, 1))

    def until(self, what: Callable[[], object]) -> None:
        def step() -> object:
            for gone in self.launcher.exits():
                self.exits.append(gone)
                self.launcher.start(gone.slot)
            return what()

        eventually(step, 90)

    def chain(self, slot: int) -> dict[str, psutil.Process]:
        """The processes of a slot's newest life, from the worker up."""
        newest = max(
            (process for pid in lives(self.folder, slot) if (process := alive(pid)) is not None),
            key=lambda process: process.create_time(),
        )
        parent, daemon, executor = newest.parents()[:3]
        chain = {"worker": newest, "task": parent, "daemon": daemon, "executor": executor}
        if "warm_parent" in " ".join(parent.cmdline()):
            (task,) = [child for child in daemon.children() if child != parent and alive(child.pid)]
            chain |= {"task": task, "warm parent": parent}
        return chain


def alive(pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except psutil.NoSuchProcess:
        return None


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    for name in ("SPARK_HOME", "SPARK_LOCAL_IP", "JAVA_HOME", "PYSPARK_PYTHON"):
        # so that what the launcher sets is taken back
        monkeypatch.setenv(name, os.environ.get(name, ""))
        if not os.environ[name]:
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{REPO}")
    cluster = Cluster(tmp_path, write_worker(tmp_path))
    yield cluster
    cluster.launcher.stop(20)


def test_whatever_is_killed_the_worker_comes_back_and_nothing_is_left(cluster: Cluster) -> None:
    for what in ("worker", "task", "warm parent", "daemon", "executor"):
        chain = cluster.chain(0)
        known, other = len(lives(cluster.folder, 0)), len(lives(cluster.folder, 1))
        began_s = time.monotonic()
        chain[what].send_signal(signal.SIGKILL)
        cluster.until(lambda known=known: len(lives(cluster.folder, 0)) > known)  # type: ignore[misc]
        took_s = time.monotonic() - began_s
        print(f"{what} killed, there again after {took_s:.2f} s")
        assert took_s < 60  # other tests may start their JVMs
        eventually(lambda gone=chain["worker"]: alive(gone.pid) is None, 10)  # type: ignore[misc]
        assert len(lives(cluster.folder, 1)) == other, (
            f"killing the {what} of one slot ended the worker of another"
        )
        assert cluster.exits[-1].code == -signal.SIGKILL, cluster.exits[-1]
    cluster.launcher.stop(20)
    for slot in (0, 1):
        assert not [pid for pid in lives(cluster.folder, slot) if alive(pid)]
    log = (cluster.folder / "logs" / "worker-0.log").read_text()
    assert log.endswith("stopped\n"), "the last life was not asked to stop"


@pytest.fixture
def archive() -> Path:
    found = archive_of(installed_jars())
    if not found.exists():
        subprocess.run(
            [sys.executable, "-m", "millwheel.launch.launchers.spark.class_archive"], check=True
        )
    return found


@pytest.mark.long
def test_every_jvm_of_a_run_maps_the_archive_of_its_classes(
    archive: Path, cluster: Cluster
) -> None:
    jvms = [
        each
        for each in psutil.Process(lives(cluster.folder, 0)[-1]).parents()
        if each.name() == "java"
    ]
    assert len(jvms) == 2, "an executor and its driver"
    assert all(any(each.path == str(archive) for each in jvm.memory_maps()) for jvm in jvms)


def test_exit_codes_and_last_words_come_up(cluster: Cluster, tmp_path: Path) -> None:
    _the_rows_of_a_run_are_a_dataframe_of_its_session(cluster, tmp_path / "rows")
    _strangers_are_told_nothing_and_no_command_line_has_its_secret(cluster)
    (cluster.folder / "exit").write_text("64")
    cluster.chain(1)["worker"].send_signal(signal.SIGKILL)
    cluster.until(lambda: [gone for gone in cluster.exits if gone.code == 64])
    gone = next(gone for gone in cluster.exits if gone.code == 64)
    assert (gone.slot, gone.last_words) == (1, "last words")


def _strangers_are_told_nothing_and_no_command_line_has_its_secret(cluster: Cluster) -> None:
    """Here for the same reason."""
    conf = cluster.launcher._context.getConf()
    secret = conf.get("spark.authenticate.secret") or ""
    assert (conf.get("spark.authenticate"), len(secret)) == ("true", 64)
    ports: set[int] = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            words = " ".join(process.cmdline())
            assert secret not in words
            if "org.apache.spark" in words:  # and no server of another test
                ports |= {
                    at.laddr.port for at in process.net_connections("tcp") if at.status == "LISTEN"
                }
    answers = {port: _status_of_page(port) for port in ports}
    pages = {port: status for port, status in answers.items() if status}
    assert len(pages) >= 3, "those of a master and two workers"
    assert set(pages.values()) == {403}


def _status_of_page(port: int) -> int:
    """0 where nothing speaks HTTP."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=5) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as ex:
        return ex.code
    except (OSError, http.client.HTTPException):
        return 0


DRIVER = """
import sys, time
from pathlib import Path
from tests.slow.test_spark import Cluster
cluster = Cluster(Path(sys.argv[1]), "stand_in_worker")
print("up", flush=True)
time.sleep(600)
"""


def _the_rows_of_a_run_are_a_dataframe_of_its_session(cluster: Cluster, folder: Path) -> None:
    """Here, because a JVM of its own would take ten seconds. The slots are taken: nothing but the
    driver computes."""
    from pyspark.sql import SparkSession

    folder.mkdir()
    (folder / "part-a-1.jsonl").write_text('{"page": "a", "n": 1}\n{"page": "b", "n": 2}\n')
    result = RunResult(
        Summary(2, 2, 0, 0, 0, 1.0, 2.0), True, {"pages": StreamFiles(folder, "jsonl")}
    )
    session = SparkSession(cluster.launcher._context)
    found = result.to_spark("pages", session)
    assert found.columns == ["page", "n"]
    assert sorted(map(tuple, found.collect())) == [("a", 1), ("b", 2)]


def test_a_killed_driver_leaves_no_process_behind(tmp_path: Path) -> None:
    write_worker(tmp_path)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPO}"}
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    driver = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, cwd=REPO)
    assert driver.stdout is not None
    assert b"up\n" in iter(driver.stdout.readline, b"")  # a slow start of Spark is told before it
    family = psutil.Process(driver.pid).children(recursive=True)
    workers = [pid for slot in (0, 1) for pid in lives(tmp_path, slot)]
    assert {process.pid for process in family} >= set(workers)
    driver.kill()
    driver.wait()
    driver.stdout.close()
    eventually(lambda: not [process for process in family if alive(process.pid)], 60)


NATIVE_THREADS = """
import glob, sys, time
from pyspark import java_gateway

def record(*_given):
    seen, until = set(), time.monotonic() + 8  # the injector leads by then
    while time.monotonic() < until:
        seen |= set(map(name, glob.glob("/proc/self/task/*/comm")))
        time.sleep(0.01)
    print("threads", sorted(seen), flush=True)
    raise RuntimeError("seen enough")

def name(path):
    try:
        return open(path).read().strip()
    except OSError:
        return ""  # it has just ended

java_gateway.launch_gateway = record
from millwheel.tools.cli import main
sys.argv = ["millwheel", *sys.argv[1:]]
main()
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="native threads have names in /proc"
)
def test_the_jvm_is_forked_before_the_driver_uses_grpc(tmp_path: Path) -> None:
    """Forking while another thread is in gRPC can stop a process for ever, so nobody asks the
    injector before."""
    pipeline = [
        str(EXAMPLES / "ads" / "pipeline.yaml"),
        "--set",
        f"input={ads_events(tmp_path, 100)}",
    ]
    index = [
        "--set",
        f"output={tmp_path / 'out'}",
        "--root",
        str(tmp_path / "root"),
        "--launcher",
        "spark",
    ]
    command = [sys.executable, "-c", NATIVE_THREADS, "run", *pipeline, *index]
    driver = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=120)
    assert driver.returncode == 1, driver.stderr
    assert "seen enough" in driver.stderr
    (threads,) = [line for line in driver.stdout.splitlines() if line.startswith("threads")]
    assert "python" in threads
    assert "grpc" not in threads
    assert "event_engine" not in threads
