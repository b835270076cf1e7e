"""Workers as children of a warm parent, as the driver sees them."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import psutil
import pytest

from millwheel.launch.launchers.processes import ProcessLauncher
from tests.unit.launch.helpers import eventually, lives
from tests.unit.launch.launchers.test_processes import exits
from tests.unit.launch.launchers.test_warm_parent import started


@pytest.mark.usefixtures("threads")
def test_a_parent_with_another_thread_does_not_fork_and_workers_are_executed(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    launcher.start(0)
    eventually(lambda: not launcher.exits() and lives(tmp_path, 0))
    worker = psutil.Process(launcher.pids()[0])
    assert worker.ppid() == os.getpid()
    worker.kill()
    (gone,) = exits(launcher)
    assert gone.code == -signal.SIGKILL
    assert not list((tmp_path / "scratch").iterdir())


def test_a_driver_with_more_than_a_thousand_files_open_starts_workers_and_hears_of_their_end(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2_000:
        pytest.skip("this user may not open so many files (ulimit -n)")
    kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        worker = started(launcher, tmp_path)
        assert worker.parent() != psutil.Process()
        worker.kill()
        (gone,) = exits(launcher)
        assert gone.code == -signal.SIGKILL
    finally:
        for each in kept:
            os.close(each)
