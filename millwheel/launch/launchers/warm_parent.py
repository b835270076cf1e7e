"""``python -m millwheel.launch.launchers.warm_parent``: the warm parent of workers. It has loaded
every module that a worker needs and forks one on request, so that a killed worker is back within
hundredths of a second.

A fork copies only one thread, and locks of the other threads stay locked for ever. Therefore this
process never has a second thread: it loads nothing that starts threads (Polars does, and is loaded
late, see ``core/lazy_polars.py``), and opens no store and no connection except the one to its
driver. Before each fork it counts its threads. If there is more than one, it reports that, and the
driver executes workers as it would without a warm parent.

Children die with it, and it dies with its driver. In a Spark executor its driver is the daemon of
tasks (``spark/daemon.py``), which orders nothing: each task passes it the end of a line of its own,
and all children of the task die when that line ends.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from millwheel.adapters.processes.interpreter import module_command
from millwheel.adapters.processes.lifeline import PARENT, die_with_parent
from millwheel.adapters.rights import keep_private
from millwheel.launch.launchers.base import WORKER_MODULE
from millwheel.launch.launchers.warm_messages import (
    SHARED,
    Cold,
    Ended,
    Request,
    Signal,
    Start,
    Started,
    decode_request,
    encode,
    ready,
    receive,
    received_line,
    show_as,
)

_PROGRAMS = (
    f"{WORKER_MODULE}.__main__",
    "millwheel.control.master.__main__",
    "millwheel.control.injector.__main__",
)
_SOON = (
    "encodings.utf_8_sig",
    "grpc._channel",
    "grpc._server",
    "millwheel.connect.sinks.files.sink",
    "millwheel.connect.sources.files.apache",
    "millwheel.connect.sources.files.csv_lines",
    "millwheel.connect.sources.files.source",
    "typer._adapters",
    "typer._click.decorators",
)
"""Modules that most workers load with their pipeline, or when they begin to serve."""


def main() -> Start | None:
    """Serve the driver until it is gone (None). In a child: the program to continue as."""
    die_with_parent()
    driver, shared = socket.socket(fileno=int(sys.argv[1])), SHARED in sys.argv
    gc.disable()  # objects of modules stay: to look for garbage among them is a fifth of the time
    load(_PROGRAMS[:1] if shared else _PROGRAMS)  # tasks start workers alone
    gc.freeze()  # children share these pages until one of them writes to them
    gc.enable()
    return WarmParent(driver, shared).serve()


def load(programs: Sequence[str] = _PROGRAMS) -> None:
    """Load the modules that a child is likely to need."""
    for name in programs:
        importlib.import_module(name)
        del sys.modules[name]  # it is run anew in each child
    for name in _SOON:
        with suppress(ImportError):
            importlib.import_module(name)


class WarmParent:
    """Forks, signals and reaps children, one thing after the other, for its driver, or for all that
    pass it a line (``shared``)."""

    def __init__(self, driver: socket.socket, shared: bool = False) -> None:
        self._driver = driver
        self._shared = shared
        self._lines: set[socket.socket] = set() if shared else {driver}
        self._children: dict[int, tuple[socket.socket, int]] = {}
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)

    def serve(self) -> Start | None:
        """See :func:`main`."""
        while True:
            readable = ready(
                {self._driver.fileno(), self._woken, *(line.fileno() for line in self._lines)}
            )
            if self._woken in readable:
                os.read(self._woken, 1 << 12)
                self._reap()
            if self._shared and self._driver.fileno() in readable:
                line = received_line(self._driver)
                if line is None:
                    return None
                self._lines.add(line)
            for line in [line for line in self._lines if line.fileno() in readable]:
                data = receive(line)
                if data and (start := self._ordered(line, decode_request(data))) is not None:
                    return start
                if not data and not self._shared:
                    return None
                if not data:
                    self._leave(line)

    def _ordered(self, line: socket.socket, request: Request) -> Start | None:
        """Carry an order out. In a child, returns the start request to go on with."""
        if isinstance(request, Signal):
            self._signal(line, request)
        elif reason := why_not():
            self._report(line, Cold(request.number, reason))
        elif self._fork(line, request):
            return request
        return None

    def _fork(self, line: socket.socket, start: Start) -> bool:
        """True in the child."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._children[pid] = line, start.number
            self._report(line, Started(start.number, pid))
            return False
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in {self._driver, *self._lines}:
            each.close()
        os.close(self._woken)
        os.close(self._wakes)
        os.environ[PARENT] = str(parent)
        die_with_parent()
        return True

    def _signal(self, line: socket.socket, request: Signal) -> None:
        """Send a signal to a child. Until it is reaped, a child keeps its process id, so the signal
        reaches no other process."""
        for pid, ordered in self._children.items():
            if ordered == (line, request.number):
                os.kill(pid, request.signal)

    def _leave(self, line: socket.socket) -> None:
        """A task is gone: kill its children."""
        self._lines.discard(line)
        for pid, (owner, _) in self._children.items():
            if owner is line:
                os.kill(pid, signal.SIGKILL)
        line.close()

    def _reap(self) -> None:
        for pid, (line, number) in list(self._children.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._children[pid]
                if line in self._lines:
                    self._report(line, Ended(number, os.waitstatus_to_exitcode(status)))

    def _report(self, line: socket.socket, report: Started | Ended | Cold) -> None:
        try:
            line.send(encode(report))
        except ConnectionError:
            if not self._shared:
                os._exit(0)  # the driver is gone; our children go with us
            self._leave(line)


def why_not() -> str:
    """The reason why this process may not fork; "" when it may."""
    others = len(os.listdir("/proc/self/task")) - 1
    if others:
        return (
            f"The warm parent of workers has {others} more threads than its own, so workers are"
            " started without it."
        )
    return ""


def become(start: Start) -> None:
    """Go on as ``python -m`` would, in a session of one's own."""
    os.setsid()
    keep_private(os.path.dirname(start.out))
    for path, number in ((start.out, 1), (start.err, 2)):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        os.dup2(file, number)
        os.close(file)
    if "numpy.random" in sys.modules:
        # else all children would draw the same; `random` does so by itself
        sys.modules["numpy.random"].seed()
    show_as(module_command(start.module, start.argv))
    sys.argv = [str(Path(sys.argv[0])), *start.argv]
    runpy.run_module(start.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    asked = main()
    if asked is None:
        os._exit(0)  # a driver waits for us, and there is nothing to put in order
    become(asked)
