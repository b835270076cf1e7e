from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.launch.launchers.base import WorkerExit
from millwheel.launch.launchers.processes import ProcessLauncher
from millwheel.processes.child import Child, tail
from tests.unit.launch.helpers import eventually, lives, template, write_worker


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.getcwd()}")
    return write_worker(tmp_path)


@pytest.fixture
def launcher(tmp_path: Path, module: str) -> Iterator[ProcessLauncher]:
    made = ProcessLauncher(template(tmp_path, module))
    yield made
    made.stop(0.0)


def exits(launcher: ProcessLauncher) -> list[WorkerExit]:
    found: list[WorkerExit] = []
    eventually(lambda: found.extend(launcher.exits()) or found)
    return found


def test_a_killed_worker_is_noticed_and_its_scratch_is_gone(tmp_path: Path, launcher: ProcessLauncher) -> None:
    launcher.start(0)
    eventually(lambda: lives(tmp_path, 0))
    assert launcher.exits() == []
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    os.kill(launcher.pids()[0], signal.SIGKILL)
    (gone,) = exits(launcher)
    assert (gone.slot, gone.code) == (0, -signal.SIGKILL)
    assert gone.lived_s > 0
    assert not list((tmp_path / "scratch").iterdir())
    assert launcher.pids() == {}


def test_a_paused_worker_is_killed_if_it_is_the_one_that_is_meant(tmp_path: Path, launcher: ProcessLauncher) -> None:
    launcher.start(0)
    eventually(lambda: lives(tmp_path, 0))
    pid = launcher.pids()[0]
    os.kill(pid, signal.SIGSTOP)
    assert not launcher.kill(0, pid + 1)
    assert not launcher.kill(1, pid)
    assert launcher.exits() == []
    assert launcher.kill(0, pid)
    (gone,) = exits(launcher)
    assert gone.code == -signal.SIGKILL
    assert not launcher.kill(0, pid)


def test_last_words_are_those_of_the_last_life(tmp_path: Path, launcher: ProcessLauncher) -> None:
    (tmp_path / "exit").write_text("64")
    for _ in range(2):
        launcher.start(3)
        (gone,) = exits(launcher)
        assert (gone.code, gone.last_words) == (64, "last words")
    assert (tmp_path / "logs" / "worker-3.log").read_text().count("last words") == 2
    assert (tmp_path / "logs" / "worker-3.out").read_text() == "hello from 3\n" * 2


def test_stop_asks_first_and_then_kills_what_does_not_listen(tmp_path: Path, launcher: ProcessLauncher) -> None:
    launcher.start(0)
    launcher.start(1)
    eventually(lambda: lives(tmp_path, 0) and lives(tmp_path, 1))
    paused = launcher.pids()[1]
    os.kill(paused, signal.SIGSTOP)
    launcher.stop(2.0)
    assert "stopped" in (tmp_path / "logs" / "worker-0.log").read_text()
    with pytest.raises(ProcessLookupError):
        os.kill(paused, 0)
    assert launcher.exits() == []


def test_a_log_that_has_grown_large_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "big.log").write_bytes(b"x" * 16_000_001)
    child = Child([sys.executable, "-c", "import sys; sys.stderr.write('new')"], tmp_path / "big")
    assert child.wait(30) == 0
    assert (tmp_path / "big.log").read_text() == "new"
    assert (tmp_path / "big.log.1").stat().st_size == 16_000_001


def test_a_child_is_in_a_session_of_its_own_and_waiting_has_an_end(tmp_path: Path) -> None:
    child = Child([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "child")
    assert os.getsid(child.pid) == child.pid
    started = time.monotonic()
    assert child.wait(0.05) is None
    assert time.monotonic() - started < 5
    child.kill()
    assert child.wait(10) == -signal.SIGKILL
    child.terminate()  # nothing is left to signal


def test_the_tail_of_a_file_starts_at_the_end_at_most_2_kb_back(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("a" * 5_000 + "end")
    assert tail(file).endswith("aend")
    assert len(tail(file)) == 2_000
    assert tail(file, 5_000) == "end"
    assert tail(tmp_path / "none") == ""
