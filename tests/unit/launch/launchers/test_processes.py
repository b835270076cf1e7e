from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.launch.launchers.base import WorkerExit
from millwheel.launch.launchers.processes import ProcessLauncher
from millwheel.launch.launchers.warm_children import Children
from tests.unit.launch.helpers import eventually, lives, template, write_worker


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.getcwd()}")
    return write_worker(tmp_path)


@pytest.fixture
def launcher(tmp_path: Path, module: str) -> Iterator[ProcessLauncher]:
    with Children() as children:
        made = ProcessLauncher(template(tmp_path, module), children.start)
        yield made
        made.stop(0.0)


def exits(launcher: ProcessLauncher) -> list[WorkerExit]:
    found: list[WorkerExit] = []
    eventually(lambda: found.extend(launcher.exits()) or found)
    return found


def test_a_killed_worker_is_noticed_and_its_scratch_is_gone(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
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


def test_a_paused_worker_is_killed_if_it_is_the_one_that_is_meant(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
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


def test_stop_asks_first_and_then_kills_what_does_not_listen(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
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
