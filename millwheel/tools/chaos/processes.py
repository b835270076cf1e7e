"""The processes of a run, found below the process that started it. Only these are ever touched."""

from __future__ import annotations

import contextlib
import signal

import psutil

from millwheel.tools.chaos.plan import Target

_MARKS = {
    Target.WORKERS: ("-m millwheel.engine.workers",),
    Target.HOSTS: ("-m millwheel.engine.workers",),
    Target.EXECUTORS: ("CoarseGrainedExecutorBackend",),
    Target.MASTER: ("-m millwheel.control.master",),
    Target.INJECTOR: ("-m millwheel.control.injector",),
    Target.ZOOKEEPER: ("QuorumPeerMain", "ZooKeeperServerMain"),
}
"""Parts of the command line of a process of each kind; a host is its workers."""
_NOT_THESE = "lifeline"


def processes_of(driver_pid: int, target: Target) -> list[psutil.Process]:
    """The living processes of a kind, oldest first; none when the run is over."""
    try:
        children = psutil.Process(driver_pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    matches = []
    for child in children:
        with contextlib.suppress(psutil.Error):
            line = " ".join(child.cmdline())
            if any(mark in line for mark in _MARKS[target]) and _NOT_THESE not in line:
                matches.append((child.create_time(), child.pid, child))
    return [process for *_, process in sorted(matches, key=lambda entry: entry[:2])]


def strike(process: psutil.Process, kind: signal.Signals) -> bool:
    """Send a signal; False when the process was gone already."""
    try:
        process.send_signal(kind)
    except psutil.NoSuchProcess:
        return False
    return True


def slot_of(worker: psutil.Process) -> int | None:
    """The slot of a worker, from its command line; None when it is gone."""
    with contextlib.suppress(psutil.Error, ValueError, IndexError):
        line = worker.cmdline()
        return int(line[line.index("--slot") + 1])
    return None
