from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from millwheel.launch.launchers.executor_orders import kill_file
from millwheel.launch.launchers.spark.task import SlotTask
from tests.unit.launch.helpers import eventually, lives, template, write_worker

# What a Spark daemon and its task are for this test: a process that ignores SIGCHLD, and its fork.
DAEMON = """
import os, pickle, signal, sys
task = pickle.loads(bytes.fromhex(sys.argv[1]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    print(*next(task(iter([0])))[:2], file=open(sys.argv[2] + ".tmp", "w"))
    os.rename(sys.argv[2] + ".tmp", sys.argv[2])
    os._exit(0)
signal.pause()
"""


class Daemon:
    """Runs a task as Spark would."""

    def __init__(self, folder: Path, module: str, **changes: str) -> None:
        import pickle

        self.folder = folder
        task = SlotTask(0, replace(template(folder, module), **changes), str(folder / "stop"))
        command = [sys.executable, "-c", DAEMON, pickle.dumps(task).hex(), str(folder / "answer")]
        self.process = subprocess.Popen(command)
        eventually(lambda: lives(folder, 0))
        self.worker = psutil.Process(lives(folder, 0)[0])
        self.task = self.worker.parent()

    def answer(self) -> str:
        eventually((self.folder / "answer").exists)
        return (self.folder / "answer").read_text().strip()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.getcwd()}")
    daemon = Daemon(tmp_path, write_worker(tmp_path))
    yield daemon
    daemon.close()


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_worker_that_is_killed_ends_the_task_with_its_code(daemon: Daemon) -> None:
    daemon.worker.send_signal(signal.SIGKILL)
    assert daemon.answer().startswith("-9")
    assert not list((daemon.folder / "scratch").iterdir())


def test_the_stop_file_stops_the_worker_cleanly(daemon: Daemon) -> None:
    (daemon.folder / "stop").touch()
    assert daemon.answer() == "0 stopped"


def test_a_paused_worker_is_killed_when_its_process_is_named(daemon: Daemon) -> None:
    daemon.worker.send_signal(signal.SIGSTOP)
    named = kill_file(daemon.folder / "stop", 0)
    named.write_text(str(daemon.worker.pid + 1))
    assert not (daemon.folder / "answer").exists()
    named.write_text(str(daemon.worker.pid))
    assert daemon.answer().startswith("-9")


def test_a_worker_dies_with_its_task(daemon: Daemon) -> None:
    daemon.task.send_signal(signal.SIGKILL)
    eventually(lambda: gone(daemon.worker), 60)


def test_task_and_worker_end_when_the_daemon_is_gone(daemon: Daemon) -> None:
    daemon.process.kill()
    daemon.process.wait()
    eventually(lambda: gone(daemon.worker) and gone(daemon.task), 60)


def test_without_a_folder_for_logs_they_stay_where_the_task_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.getcwd()}")
    monkeypatch.setenv("SPARK_EXECUTOR_DIRS", str(tmp_path / "local"))
    daemon = Daemon(tmp_path, write_worker(tmp_path), logs="", scratch="")
    try:
        (tmp_path / "stop").touch()
        assert daemon.answer() == "0 stopped"
    finally:
        daemon.close()
    assert (tmp_path / "local" / "logs" / "worker-0.log").exists()
