"""Ends child processes with their parent: a killed run leaves no process behind.

The parent starts a child with :func:`child_environment`; the child calls :func:`die_with_parent`
first thing. Programs that are not ours (a JVM) are started through :func:`mortal`. Nothing runs
between fork and exec, so this is safe in a parent with threads.

On Linux the kernel sends the signal when the *thread* that started the child ends: start children
only from a thread that outlives them. On other systems, a watching thread ends the child within a
second.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from millwheel.adapters.processes.interpreter import module_command

PARENT = "MILLWHEEL_PARENT"
_PR_SET_PDEATHSIG = 1  # Fixed: of prctl(2)
_WATCH_INTERVAL_S = 0.5  # between checks of the parent, where the kernel sends no signal


def child_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a child of this process: ``base`` (default: ours) and the id of its
    parent."""
    return {**(os.environ if base is None else base), PARENT: str(os.getpid())}


def mortal(command: Sequence[str]) -> list[str]:
    """``command``, wrapped so that it dies with the process that starts it (with the environment of
    :func:`child_environment`)."""
    return module_command("millwheel.adapters.processes.lifeline", command)


def die_with_parent() -> None:
    """Arrange for SIGKILL as soon as the parent is gone; a process started by hand has no such
    parent.

    SIGKILL, because every process here may die at any moment without harm, and an orderly end might
    hang.
    """
    named = os.environ.pop(PARENT, "")
    if not named:
        return
    parent = int(named)
    if not _ask_kernel():
        threading.Thread(target=_watch, args=(parent,), daemon=True, name="lifeline").start()
    if os.getppid() != parent:  # the parent died before the call of prctl
        _die()


def _ask_kernel() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_INTERVAL_S)
    _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent()
    os.execvp(sys.argv[1], sys.argv[1:])
