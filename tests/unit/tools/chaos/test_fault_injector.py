"""A run whose one worker is a shell that reads a pipe: faults hit it, and are undone, as with a
real worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from millwheel.errors import SetupError
from millwheel.tools.chaos.fault_injector import Command, FaultInjector, Outcome
from millwheel.tools.chaos.plan import Fault, PlannedFault, Target

RUN = """
trap 'kill $worker; exit 130' INT
until [ -e ended ]; do
  sh -c 'read line < pipe' -m $MODULE --slot 4 &
  worker=$!
  echo $worker >> lives
  wait $worker
done
"""
"""Starts its worker again until the file ``ended`` is there. A worker ends when a line comes
through the pipe."""


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell cannot trap what was ignored when it began, as SIGINT is in what runs in the
    background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Run:
    """One run in the current folder, with these faults: what is done, and for how long."""

    def __init__(self, *faults: tuple[Fault, float]) -> None:
        os.mkfifo("pipe")
        self._pipe = os.open("pipe", os.O_RDWR)  # open from here on, so that no line in it is lost
        self.said: list[str] = []
        self.told: Callable[[], None] = lambda: None
        self.cuts: list[str] = []
        self._faults = faults
        self._idle_looks = 0
        self.target = Target.WORKERS
        namespaces: Any = SimpleNamespace(
            cut=lambda host: self.cuts.append(f"cut {host}"),
            reconnect=lambda host: self.cuts.append(f"reconnect {host}"),
            host_of=lambda slot: slot // 2,
        )
        command = Command(["sh", "-c", RUN], {"MODULE": "millwheel.engine.workers"})
        self._injector = FaultInjector(
            command, Path("logs/run.log"), self.say, namespaces=namespaces
        )

    def say(self, sentence: str) -> None:
        self.said.append(sentence)
        self.told()

    def until(self, lives: int, most: int = 9) -> Outcome:
        """Ends when the worker has lived so often and all faults are over."""
        return self.run(lambda: self._begin(lives), most)

    def run(self, begin: Callable[[], bool], most: int = 9, limit_s: float = 600.0) -> Outcome:
        faults = [
            PlannedFault(0.0, self.target, fault, 0.0, lasts_s) for fault, lasts_s in self._faults
        ]
        plan: Any = SimpleNamespace(faults=lambda: iter(faults), one_by_one=False)
        try:
            return self._injector.run(plan, begin, most, limit_s)
        finally:
            os.close(self._pipe)

    def _begin(self, lives: int) -> bool:
        """The injector asks whenever no fault is planned."""
        self._idle_looks += (
            len(self.said) == len(self._faults)
            and len(self.lives()) == lives
            and _is_worker(self.lives()[-1])
        )
        if self._idle_looks == 2:  # it has looked at the processes once since then
            self.end()
        return bool(self.lives())

    def end(self) -> None:
        """The worker ends by itself, and is not started again."""
        Path("ended").touch()
        os.write(self._pipe, b"end\n")

    def lives(self) -> Sequence[int]:
        return (
            [int(pid) for pid in Path("lives").read_text().split()]
            if Path("lives").exists()
            else []
        )


def _is_worker(pid: int) -> bool:
    """Whether a process can be told to be one. It is a copy of its shell at first."""
    try:
        return b"millwheel.engine.workers" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_worker_that_is_killed_is_counted_and_so_is_its_successor() -> None:
    run = Run((Fault.KILL, 0.0))
    fault_counts = run.until(lives=2).fault_counts
    assert list(fault_counts) == [(Target.WORKERS, Fault.KILL)]
    [killed] = fault_counts.values()
    assert (killed.number, len(killed.replaced_s)) == (1, 1)
    assert run.said == [f"killed one of the workers (process {run.lives()[0]})"]


def test_a_pause_and_a_partition_are_undone_when_their_time_is_over() -> None:
    run = Run((Fault.PAUSE, 0.0), (Fault.PARTITION, 0.0))
    fault_counts = run.until(lives=1).fault_counts
    assert {fault: found.number for (_, fault), found in fault_counts.items()} == {
        Fault.PAUSE: 1,
        Fault.PARTITION: 1,
    }
    assert run.cuts == ["cut 2", "reconnect 2"]


def test_a_host_is_cut_off_before_all_its_workers_are_killed_and_comes_back() -> None:
    run = Run((Fault.KILL, 0.0))
    run.target = Target.HOSTS
    fault_counts = run.until(lives=2).fault_counts
    [lost] = fault_counts.values()
    assert list(fault_counts) == [(Target.HOSTS, Fault.KILL)]
    assert (lost.number, len(lost.replaced_s)) == (1, 1)
    assert run.cuts == ["cut 2", "reconnect 2"]
    assert run.said == [f"killed one of the hosts (process {run.lives()[0]}) for 0.0 s"]


def test_no_more_faults_come_than_are_asked_for() -> None:
    run = Run((Fault.PAUSE, 0.0), (Fault.PAUSE, 0.0))
    run.told = run.end
    [paused] = run.run(lambda: bool(run.lives()), most=1).fault_counts.values()
    assert paused.number == len(run.said) == 1


def test_a_run_that_is_broken_off_leaves_nobody_stopped_or_cut_off() -> None:
    run = Run((Fault.PAUSE, 600.0), (Fault.PARTITION, 600.0))

    def begin() -> bool:
        if len(run.said) == 2:
            raise KeyboardInterrupt
        return bool(run.lives())

    with pytest.raises(KeyboardInterrupt):
        run.run(begin)
    assert run.cuts == ["cut 2", "reconnect 2"]
    [worker] = run.lives()
    assert not psutil.pid_exists(worker) or psutil.Process(worker).status() != psutil.STATUS_STOPPED


def test_a_run_that_takes_too_long_is_ended() -> None:
    run = Run()
    with pytest.raises(SetupError, match=r"did not end in time.*--limit"):
        run.run(lambda: False, limit_s=0.0)


def test_a_run_that_fails_is_told_with_its_code_and_its_last_words() -> None:
    injector = FaultInjector(
        Command(["sh", "-c", "echo $WHY >&2; exit 3"], {"WHY": "no port"}), Path("run.log"), print
    )
    with pytest.raises(
        SetupError, match=r"ended with code 3; its log run\.log ends with:\nno port"
    ):
        injector.run(None, lambda: False, 0, 60.0)
