"""Workers of tasks are forked by the warm parent of their daemon; tests/slow/test_spark.py has a
real Spark."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from millwheel.adapters.processes.lifeline import child_environment
from millwheel.launch.launchers.spark.daemon import inherited
from millwheel.launch.launchers.spark.task import SlotTask
from tests.unit.launch.helpers import eventually, lives, template, write_worker
from tests.unit.launch.launchers.test_warm_parent import runs

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere workers are executed"
)

# What a Spark daemon and its tasks are for this test: a process with a warm parent, and its forks,
# one for each byte.
DAEMON = """
import os, pickle, signal, sys
from pathlib import Path
from millwheel.launch.launchers.spark import daemon
from millwheel.adapters.processes.lifeline import die_with_parent
die_with_parent()
folder = Path(sys.argv[2])
daemon.begin(daemon.task_environment())
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for byte in iter(lambda: sys.stdin.buffer.read(1), b""):
    if os.fork() == 0:
        slot = int(byte)
        task = pickle.loads(bytes.fromhex(sys.argv[1]))[slot]
        answer = folder / f"answer-{slot}"
        answer.unlink(missing_ok=True)
        answer.write_text(" ".join(map(str, next(task(iter([0])))[:2])))
        os._exit(0)
"""


class Daemon:
    """Runs tasks as Spark would, two slots of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        given = template(folder, write_worker(folder))
        tasks = pickle.dumps([SlotTask(slot, given, str(folder / "stop")) for slot in (0, 1)]).hex()
        path = f"{folder}{os.pathsep}{os.getcwd()}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", DAEMON, tasks, str(folder)],
            stdin=subprocess.PIPE,
            env=child_environment({**os.environ, "PYTHONPATH": path}),
        )

    def start(self, slot: int) -> psutil.Process:
        known = lives(self.folder, slot)
        assert self.process.stdin is not None
        self.process.stdin.write(b"%d" % slot)
        self.process.stdin.flush()
        eventually(lambda: set(lives(self.folder, slot)) - set(known), 90)
        (pid,) = set(lives(self.folder, slot)) - set(known)
        return psutil.Process(pid)

    def answer(self, slot: int) -> str:
        path = self.folder / f"answer-{slot}"
        eventually(lambda: path.exists() and path.read_text(), 60)
        return path.read_text()

    def warm(self) -> psutil.Process:
        (found,) = [each for each in self._children() if "warm_parent" in " ".join(each.cmdline())]
        return found

    def task(self) -> psutil.Process:
        (found,) = [
            each for each in self._children() if "warm_parent" not in " ".join(each.cmdline())
        ]
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def _children(self) -> list[psutil.Process]:
        return [each for each in psutil.Process(self.process.pid).children() if runs(each.pid)]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.close()


def test_one_parent_forks_the_workers_of_all_tasks_and_tells_each_task_of_its_own(
    daemon: Daemon,
) -> None:
    first, second = daemon.start(0), daemon.start(1)
    assert first.parent() == second.parent() == daemon.warm()
    first.send_signal(signal.SIGKILL)
    assert daemon.answer(0).startswith("-9")
    assert runs(second.pid)
    assert daemon.start(0).parent() == daemon.warm()
    (daemon.folder / "stop").touch()
    assert daemon.answer(1) == "0 stopped"


def test_a_worker_ends_with_its_task_and_others_go_on(daemon: Daemon) -> None:
    first = daemon.start(0)
    task = daemon.task()
    second = daemon.start(1)
    task.send_signal(signal.SIGKILL)
    eventually(lambda: not runs(first.pid), 60)
    assert runs(second.pid)


def test_all_end_with_the_daemon_and_tasks_hear_of_a_parent_that_is_gone(daemon: Daemon) -> None:
    worker, warm = daemon.start(0), daemon.warm()
    warm.send_signal(signal.SIGKILL)
    assert daemon.answer(0).startswith("-9")
    eventually(lambda: not runs(worker.pid), 60)
    second = daemon.start(0)
    assert second.parent() != warm, "without a warm parent it is executed by its task"
    daemon.process.kill()
    daemon.process.wait()
    eventually(lambda: not runs(second.pid), 60)


def test_without_a_daemon_of_ours_there_is_no_line() -> None:
    assert inherited({}) is None


LINKED = """
import os, sys
from pathlib import Path
from millwheel.launch.launchers.spark import daemon
for kind in ("log", "out"):  # what another user would do for each process id
    os.symlink(sys.argv[1], f"{os.environ['TMPDIR']}/millwheel-warm-{os.getpid()}.{kind}")
daemon.begin(daemon.task_environment())
"""


def test_links_at_names_that_can_be_guessed_are_not_followed(tmp_path: Path) -> None:
    shared, private = tmp_path / "tmp", tmp_path / "authorized_keys"
    shared.mkdir()
    environment = {**os.environ, "TMPDIR": str(shared), "PYTHONPATH": os.getcwd()}
    subprocess.run(
        [sys.executable, "-c", LINKED, str(private)], env=child_environment(environment), check=True
    )
    assert not private.exists()
    assert [path.name for path in shared.iterdir() if not path.is_symlink()] == [], (
        "and nothing is left there"
    )
