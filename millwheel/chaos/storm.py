"""Runs a pipeline as a child process and, if asked, strikes its processes while it runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from millwheel.chaos.plan import Blow, Fault, Plan, Target
from millwheel.chaos.processes import processes_of, strike
from millwheel.errors import SetupError

_POLL_S = 0.05
_LAST_WORDS = 2_000
Say = Callable[[str], None]


@dataclass(slots=True)
class Struck:
    """What was done, and how long it took until a new process stood in the place of one that was killed (s)."""

    blows: int = 0
    replaced_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """How a run went."""

    seconds: float
    struck: dict[tuple[Target, Fault], Struck]


class Storm:
    """One run. ``command`` are the arguments of ``millwheel run``."""

    def __init__(self, command: Sequence[str], log: Path, say: Say) -> None:
        self._command = [sys.executable, "-m", "millwheel", "run", *command]
        self._log = log
        self._say = say
        self._paused: list[tuple[float, psutil.Process]] = []
        self._waiting: list[tuple[Target, int, float]] = []
        self._struck: dict[tuple[Target, Fault], Struck] = {}

    def run(self, plan: Plan | None, begin: Callable[[], bool], most: int, limit_s: float) -> Outcome:
        """Until it ends. Faults come once ``begin()`` is true, at most ``most`` of them. SetupError with its last words
        if the run fails or takes longer than ``limit_s``."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with self._log.open("wb") as log:
            process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
            try:
                self._watch(process, plan, begin, most, started + limit_s)
            finally:
                self._calm()
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    process.wait(60)
        if process.returncode != 0:
            words = self._log.read_text(errors="replace")[-_LAST_WORDS:]
            raise SetupError(f"the run ended with code {process.returncode}; its log {self._log} ends so:\n{words}")
        return Outcome(time.monotonic() - started, self._struck)

    def _watch(
        self, process: subprocess.Popen[bytes], plan: Plan | None, begin: Callable[[], bool], most: int, until: float
    ) -> None:
        blows = iter(()) if plan is None else plan.blows()
        upcoming: Blow | None = None
        due, left = 0.0, most
        while process.poll() is None:
            now = time.monotonic()
            if now > until:
                raise SetupError(f"the run did not end in time; see {self._log}, and give more with --limit")
            self._resume(now)
            self._look_for_new(process.pid, now)
            if upcoming is None and left and begin():
                upcoming = next(blows, None)
                due = now + (upcoming.after_s if upcoming is not None else 0.0)
            elif upcoming is not None and now >= due:
                left -= self._strike(process.pid, upcoming, now)
                upcoming = None
            time.sleep(_POLL_S)

    def _strike(self, driver: int, blow: Blow, now: float) -> int:
        there = processes_of(driver, blow.target)
        if not there:
            return 0
        victim = there[int(blow.pick * len(there))]
        if not strike(victim, signal.SIGKILL if blow.fault is Fault.KILL else signal.SIGSTOP):
            return 0
        self._struck.setdefault((blow.target, blow.fault), Struck()).blows += 1
        if blow.fault is Fault.PAUSE:
            self._paused.append((now + blow.lasts_s, victim))
            self._say(f"paused one of the {blow.target.value} (process {victim.pid}) for {blow.lasts_s:.1f} s")
        else:
            self._waiting.append((blow.target, max(process.pid for process in there), now))
            self._say(f"killed one of the {blow.target.value} (process {victim.pid})")
        return 1

    def _look_for_new(self, driver: int, now: float) -> None:
        still = []
        for target, newest, since in self._waiting:
            if any(process.pid > newest for process in processes_of(driver, target)):
                self._struck[target, Fault.KILL].replaced_s.append(now - since)
            else:
                still.append((target, newest, since))
        self._waiting = still

    def _resume(self, now: float) -> None:
        for at, process in self._paused:
            if at <= now:
                strike(process, signal.SIGCONT)
        self._paused = [(at, process) for at, process in self._paused if at > now]

    def _calm(self) -> None:
        for _, process in self._paused:
            strike(process, signal.SIGCONT)
        self._paused = []
