"""Runs a pipeline as a child process and, on request, injects faults into its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from millwheel.errors import SetupError
from millwheel.tools.chaos.namespaces import Namespaces
from millwheel.tools.chaos.observer import Observer, family
from millwheel.tools.chaos.plan import Fault, Plan, PlannedFault, Target
from millwheel.tools.chaos.processes import processes_of, slot_of, strike
from millwheel.tools.chaos.recoveries import Recovery

_POLL_S = 0.05  # between looks at the run
_LAST_WORDS = 2_000  # characters of a log that are shown when a process has failed
_PATIENCE_S = 30.0  # for the pipeline to recover from a fault
_SIGNALS = {Fault.KILL: signal.SIGKILL, Fault.PAUSE: signal.SIGSTOP}
_DONE = {Fault.KILL: "killed", Fault.PAUSE: "paused", Fault.PARTITION: "cut off"}
Announce = Callable[[str], None]


@dataclass(slots=True)
class FaultCount:
    """The number of faults, and the seconds until a new process replaced each one that was
    killed."""

    number: int = 0
    replaced_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """How a run went."""

    seconds: float
    fault_counts: dict[tuple[Target, Fault], FaultCount]
    recoveries: Sequence[Recovery] = ()


@dataclass(frozen=True, slots=True)
class _Passing:
    """A fault that ends by itself: when, how it is undone, and which processes it hit."""

    until_s: float
    undo: Callable[[], object]
    victims: frozenset[str]


@dataclass(frozen=True, slots=True)
class Command:
    """The argv of a run, and variables added to our own environment."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class FaultInjector:
    """One run. ``observer`` records faults and recoveries; network partitions and losses of hosts
    need ``namespaces``, in which the run must be."""

    def __init__(
        self,
        command: Command,
        log: Path,
        announce: Announce,
        observer: Observer | None = None,
        namespaces: Namespaces | None = None,
    ) -> None:
        self._command = command
        self._log = log
        self._announce = announce
        self._observer = observer
        self._namespaces = namespaces
        self._passing: list[_Passing] = []
        self._cut: set[int] = set()
        self._waiting: list[tuple[Target, int, float]] = []
        self._fault_counts: dict[tuple[Target, Fault], FaultCount] = {}

    def run(
        self, plan: Plan | None, begin: Callable[[], bool], most: int, limit_s: float
    ) -> Outcome:
        """Run until it ends. Faults start once ``begin()`` is true; there are at most ``most``.
        Raises SetupError, with the end of the log, if the run fails or takes longer than
        ``limit_s``."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        environment = {**os.environ, **self._command.environment}
        with self._log.open("wb") as log:
            # In a session of its own: it would count the Ctrl-C of a terminal and our signal as
            # two.
            process = subprocess.Popen(
                self._command.argv,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            try:
                self._watch(process, plan, begin, most, started + limit_s)
            finally:
                self._calm()
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    process.wait(60)
        if process.returncode != 0:
            words = self._log.read_text(errors="replace")[-_LAST_WORDS:]
            raise SetupError(
                f"the run ended with code {process.returncode}; its log {self._log} ends"
                f" with:\n{words}"
            )
        faults = self._observer.recoveries.faults if self._observer is not None else ()
        return Outcome(time.monotonic() - started, self._fault_counts, faults)

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        plan: Plan | None,
        begin: Callable[[], bool],
        most: int,
        until_s: float,
    ) -> None:
        planned_faults = iter(()) if plan is None else plan.faults()
        upcoming: PlannedFault | None = None
        due, remaining = 0.0, most
        while process.poll() is None:
            now_s = time.monotonic()
            if now_s > until_s:
                raise SetupError(
                    f"the run did not end in time; see {self._log}, and give more with --limit"
                )
            self._resume(now_s)
            self._look_for_new(process.pid, now_s)
            if self._observer is not None:
                self._observer.look(now_s)
            if upcoming is None and remaining and begin():
                upcoming = next(planned_faults, None)
                due = now_s + (upcoming.after_s if upcoming is not None else 0.0)
            elif (
                upcoming is not None
                and plan is not None
                and now_s >= due
                and self._may_strike(plan, now_s)
            ):
                if self._strike(process.pid, upcoming, plan.one_by_one):
                    remaining, upcoming = remaining - 1, None
            time.sleep(_POLL_S)

    def _may_strike(self, plan: Plan, now_s: float) -> bool:
        if not plan.one_by_one or self._observer is None:
            return True
        return (
            not self._waiting
            and not self._passing
            and self._observer.recoveries.settled(now_s, _PATIENCE_S)
        )

    def _strike(self, driver: int, planned: PlannedFault, serving: bool) -> bool:
        """False when there is no process to hit (yet)."""
        there = processes_of(driver, planned.target)
        if serving and self._observer is not None:
            there = [
                process
                for process in there
                if self._observer.serves(planned.target, family(process))
            ]
        # One that is cut off already would reconnect after the shorter of both times.
        if planned.fault is Fault.PARTITION or planned.target is Target.HOSTS:
            there = [process for process in there if self._host_of(process) not in self._cut]
        if not there:
            return False
        victims = self._together(there[int(planned.pick * len(there))], driver, planned.target)
        pids = frozenset().union(*map(family, victims))
        if self._observer is not None:
            self._observer.look(time.monotonic())
        now_s = time.monotonic()
        undo = self._hit(victims, planned)
        if undo is None:
            return False
        self._fault_counts.setdefault((planned.target, planned.fault), FaultCount()).number += 1
        seen = (
            self._observer.on_fault(planned.target, planned.fault, pids, now_s)
            if self._observer is not None
            else None
        )
        if planned.fault is Fault.KILL:
            self._waiting.append((planned.target, max(process.pid for process in there), now_s))
        if passes := planned.fault is not Fault.KILL or planned.target is Target.HOSTS:
            names = seen.victims if seen is not None else frozenset()
            self._passing.append(_Passing(now_s + planned.lasts_s, undo, names))
        which = "process " + ", ".join(str(victim.pid) for victim in victims)
        lasting = f" for {planned.lasts_s:.1f} s" if passes else ""
        self._announce(
            f"{_DONE[planned.fault]} one of the {planned.target.value} ({which}){lasting}"
        )
        return True

    def _together(
        self, victim: psutil.Process, driver: int, target: Target
    ) -> list[psutil.Process]:
        """The processes that a fault of this process hits: of a host all that it has."""
        if target is not Target.HOSTS:
            return [victim]
        host = self._host_of(victim)
        return [each for each in processes_of(driver, target) if self._host_of(each) == host]

    def _host_of(self, worker: psutil.Process) -> int | None:
        """The host of a worker; None when it is gone, or unknown."""
        slot = slot_of(worker)
        return None if slot is None or self._namespaces is None else self._namespaces.host_of(slot)

    def _hit(
        self, victims: Sequence[psutil.Process], planned: PlannedFault
    ) -> Callable[[], object] | None:
        """Inject the fault. Returns the function that undoes it, None when the processes were
        already gone."""
        host = self._host_of(victims[0]) if victims else None
        if planned.target is Target.HOSTS or planned.fault is Fault.PARTITION:
            if self._namespaces is None or host is None:
                return None
            self._namespaces.cut(host)  # first: a machine without power sends nothing more
            self._cut.add(host)
            if planned.fault is Fault.KILL:
                for victim in victims:
                    strike(victim, signal.SIGKILL)
            return lambda: self._reconnect(host)
        [victim] = victims
        return (
            (lambda: strike(victim, signal.SIGCONT))
            if strike(victim, _SIGNALS[planned.fault])
            else None
        )

    def _reconnect(self, host: int) -> None:
        if self._namespaces is not None:
            self._namespaces.reconnect(host)
        self._cut.discard(host)

    def _look_for_new(self, driver: int, now_s: float) -> None:
        newest_now = {
            target: max((process.pid for process in processes_of(driver, target)), default=0)
            for target in {target for target, *_ in self._waiting}
        }
        still = []
        for target, newest, since_s in self._waiting:
            if newest_now[target] > newest:
                self._fault_counts[target, Fault.KILL].replaced_s.append(now_s - since_s)
            else:
                still.append((target, newest, since_s))
        self._waiting = still

    def _resume(self, now_s: float) -> None:
        over = [passing for passing in self._passing if passing.until_s <= now_s]
        self._passing = [passing for passing in self._passing if passing.until_s > now_s]
        for passing in over:
            passing.undo()
            if self._observer is not None:
                self._observer.recoveries.outlived(passing.victims)

    def _calm(self) -> None:
        for passing in self._passing:
            passing.undo()
        self._passing = []
        if self._observer is not None:
            self._observer.close()
