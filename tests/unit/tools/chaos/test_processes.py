from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from millwheel.tools.chaos.plan import Target
from millwheel.tools.chaos.processes import processes_of, slot_of, strike

WAITING = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    lines = (
        ["-m millwheel.engine.workers", "--slot", "4"],
        ["-m millwheel.engine.workers lifeline"],
        ["-m millwheel.control.master"],
    )
    made = [
        subprocess.Popen(
            [sys.executable, "-c", WAITING, *line], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for line in lines
    ]
    # a process that has only just been started has an empty command line for a moment
    for child in made:
        assert child.stdout is not None
        child.stdout.readline()
    yield made
    for child in made:
        child.communicate()


def test_the_processes_of_a_kind_are_found_below_the_driver_alone(
    children: list[subprocess.Popen[bytes]],
) -> None:
    worker, _, master = children
    assert [process.pid for process in processes_of(os.getpid(), Target.WORKERS)] == [worker.pid]
    assert [process.pid for process in processes_of(os.getpid(), Target.MASTER)] == [master.pid]
    assert processes_of(os.getpid(), Target.ZOOKEEPER) == []
    assert processes_of(master.pid, Target.WORKERS) == []


def test_a_worker_says_its_slot_and_one_without_a_slot_says_none(
    children: list[subprocess.Popen[bytes]],
) -> None:
    worker, _, master = children
    assert slot_of(psutil.Process(worker.pid)) == 4
    assert slot_of(psutil.Process(master.pid)) is None


def test_who_is_gone_cannot_be_struck() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = psutil.Process(child.pid)
    child.wait()
    assert not strike(process, signal.SIGKILL)
    assert processes_of(child.pid, Target.WORKERS) == []
