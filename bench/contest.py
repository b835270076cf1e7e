"""One run of one system: its processes, its clock, its memory and its time-out.

**The clock, for every system alike:** from the moment at which any of its processes first opens the
input, until the last file of its results (its own commit log included, where it keeps one there)
got its last byte or its final name. Starting interpreters, JVMs, ZooKeeper and workers is therefore
outside, as is shutting down.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil

from bench.opened import FirstOpen, last_change

_SAMPLE_S = 0.25
_TAIL = 1_500


@dataclass(frozen=True, slots=True)
class Run:
    """What to start. ``output`` is where its results appear; ``log`` gets all that it says."""

    command: Sequence[str]
    folder: Path
    input: Path | None
    output: Path
    timeout_s: float
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went. ``seconds`` is None when the clock had no start or no end; ``rss_mb`` is the
    peak of the sum over all processes, what they share counted in each."""

    code: int | None
    seconds: float | None
    wall_s: float
    cpu_s: float
    rss_mb: float
    tail: str
    busiest_cpu_s: float = 0.0
    """Of the process that used most."""

    largest_mb: float = 0.0
    """The peak of the memory of the process that has most."""

    roles: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The CPU seconds of each of our processes, by what it runs: ``driver``, ``master``,
    ``workers`` and so on."""

    cpu_at: Sequence[tuple[float, float]] = ()
    """(s since 1970, CPU seconds of all of them until then), several times a second."""

    def cores(self, since_s: float, until_s: float) -> float | None:
        """The cores that they used between two times (s since 1970): what it takes once all have
        started. None when there were not two looks in between."""
        within = [look for look in self.cpu_at if since_s <= look[0] <= until_s]
        if len(within) < 2:
            return None
        (began, before), (ended, after) = within[0], within[-1]
        return (after - before) / (ended - began)

    @property
    def error(self) -> str:
        """Empty when it ended well."""
        if self.code is None:
            return f"did not end within its time: {self.tail}"
        return f"ended with {self.code}: {self.tail}" if self.code else ""


def execute(run: Run) -> Outcome:
    """Run it to its end, or to its time-out; nothing of it is left running."""
    run.output.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    looks: list[tuple[float, float]] = []
    if run.input is None:
        (code, rss, used), opened = _supervised(run, looks), None
    else:
        _warm(run.input)
        with FirstOpen(run.input) as first:
            code, rss, used = _supervised(run, looks)
        opened = first.at
    changed = last_change(run.output)
    seconds = changed - opened if opened is not None and changed is not None else None
    cpu_s, took_s = [each.cpu_s for each in used], time.monotonic() - began
    busiest_s = max(cpu_s, default=0.0)
    largest_mb, tail = max((each.rss_mb for each in used), default=0.0), _tail(run.log)
    return Outcome(
        code, seconds, took_s, sum(cpu_s), rss, tail, busiest_s, largest_mb, _by_role(used), looks
    )


@dataclass(frozen=True, slots=True)
class _Used:
    """What one process has used so far, and what it runs ("": none of ours); ``rss_mb`` is the most
    that it had."""

    role: str
    cpu_s: float
    rss_mb: float


def _by_role(used: Sequence[_Used]) -> dict[str, tuple[float, ...]]:
    roles = sorted({each.role for each in used if each.role})
    return {role: tuple(each.cpu_s for each in used if each.role == role) for role in roles}


def role_of(command: Sequence[str]) -> str:
    """What a process of ours runs, by its command: ``driver`` for ``millwheel run``, else the
    module without its package; "" for others."""
    modules = [
        after
        for option, after in pairwise(command)
        if option == "-m" and after.startswith("millwheel")
    ]
    if not modules:
        return ""
    return (
        "driver"
        if modules[0] == "millwheel"
        else modules[0].removeprefix("millwheel.").rpartition(".")[2]
    )


def _supervised(
    run: Run, looks: list[tuple[float, float]]
) -> tuple[int | None, float, tuple[_Used, ...]]:
    """Exit code, peak memory, and the CPU seconds of each of the family, as sampled: the end of
    each is missing. ``looks`` gets the sum at each look."""
    with run.log.open("wb") as log:
        process = subprocess.Popen(
            list(run.command), cwd=run.folder, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **run.env}, start_new_session=True,
        )  # fmt: skip
    deadline, peak = time.monotonic() + run.timeout_s, 0.0
    used: dict[int, _Used] = {}
    try:
        while time.monotonic() < deadline:
            try:
                return process.wait(_SAMPLE_S), peak, tuple(used.values())
            except subprocess.TimeoutExpired:
                peak = max(peak, _sample(process.pid, used))
                looks.append((time.time(), sum(each.cpu_s for each in used.values())))
        return None, peak, tuple(used.values())
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """A run that is over has no process any more; of one that is not, all are killed."""
    if process.poll() is None:
        family = [process.pid, *(child.pid for child in _family(process.pid))]
        for pid in family:
            _kill(pid)
        process.wait()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _family(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


def _sample(pid: int, used: dict[int, _Used]) -> float:
    """Memory of the family in MB; ``used`` gets what each process has used so far."""
    total = 0.0
    for process in (psutil.Process(pid), *_family(pid)) if psutil.pid_exists(pid) else ():
        with contextlib.suppress(psutil.Error):
            rss_mb = process.memory_info().rss / 1e6
            total += rss_mb
            times, before = process.cpu_times(), used.get(process.pid)
            most_mb = rss_mb if before is None else max(before.rss_mb, rss_mb)
            cpu_s = times.user + times.system
            used[process.pid] = _Used(role_of(process.cmdline()), cpu_s, most_mb)
    return total


def _warm(folder: Path) -> None:
    """Read the input once, so that every run finds it in memory."""
    for path in sorted(folder.iterdir()):
        path.read_bytes()


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-_TAIL:] if log.exists() else ""
