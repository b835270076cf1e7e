"""``python -m millwheel.launch.launchers.warm_parent``: the warm parent of workers. It has loaded every module that a
worker needs and forks one on request, so that a killed worker is back within hundredths of a second.

A fork copies only one thread, and locks of the other threads stay locked for ever. Therefore this process never has a
second thread: it loads nothing that starts threads (Polars does, and is loaded late, see
``core/columns/lazy_polars.py``), and opens no store and no connection except the one to its driver. Before each fork it
counts its threads. If there is more than one, it reports that, and the driver executes workers as it would without a
warm parent.

Children die with it, and it dies with its driver.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from millwheel.launch.launchers.base import WORKER_MODULE
from millwheel.launch.launchers.warm_messages import (
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
)
from millwheel.processes.command_line import show_as
from millwheel.processes.lifeline import PARENT, die_with_parent

_PROGRAMS = (f"{WORKER_MODULE}.__main__", "millwheel.master.__main__", "millwheel.injector.__main__")
_SOON = (
    "encodings.utf_8_sig",
    "grpc._channel",
    "grpc._server",
    "millwheel.sinks.files.sink",
    "millwheel.sources.files.apache",
    "millwheel.sources.files.csv_lines",
    "millwheel.sources.files.source",
    "typer._adapters",
    "typer._click.decorators",
)
"""Modules that most workers load with their pipeline, or when they begin to serve."""


def main() -> Start | None:
    """Serve the driver until it is gone (None). In a child: the program to continue as."""
    die_with_parent()
    driver = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()  # what modules make stays: to look for garbage among it is a fifth of the time
    load()
    gc.freeze()  # children share these pages as long as nobody writes to them
    gc.enable()
    return WarmParent(driver).serve()


def load() -> None:
    """Load the modules that a child is likely to need."""
    for name in _PROGRAMS:
        importlib.import_module(name)
        del sys.modules[name]  # it is run anew in each child
    for name in _SOON:
        with suppress(ImportError):
            importlib.import_module(name)


class WarmParent:
    """Forks, signals and reaps children, one thing after the other."""

    def __init__(self, driver: socket.socket) -> None:
        self._driver = driver
        self._pids: dict[int, int] = {}
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)

    def serve(self) -> Start | None:
        """See :func:`main`."""
        while True:
            readable = ready((self._driver.fileno(), self._woken))
            if self._woken in readable:
                os.read(self._woken, 1 << 12)
                self._reap()
            if self._driver.fileno() in readable:
                data = receive(self._driver)
                if not data:
                    return None
                request: Request = decode_request(data)
                if isinstance(request, Signal):
                    self._signal(request)
                elif reason := why_not():
                    self._tell(Cold(request.number, reason))
                elif self._fork(request):
                    return request

    def _fork(self, start: Start) -> bool:
        """True in the child."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._pids[start.number] = pid
            self._tell(Started(start.number, pid))
            return False
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._driver.close()
        os.close(self._woken)
        os.close(self._wakes)
        os.environ[PARENT] = str(parent)
        die_with_parent()
        return True

    def _signal(self, request: Signal) -> None:
        """Send a signal to a child. Until it is reaped, a child keeps its process id, so the signal reaches no other
        process."""
        pid = self._pids.get(request.number)
        if pid is not None:
            os.kill(pid, request.signal)

    def _reap(self) -> None:
        for number, pid in list(self._pids.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._pids[number]
                self._tell(Ended(number, os.waitstatus_to_exitcode(status)))

    def _tell(self, report: Started | Ended | Cold) -> None:
        try:
            self._driver.send(encode(report))
        except ConnectionError:
            os._exit(0)  # the driver is gone; our children go with us


def why_not() -> str:
    """The reason why this process may not fork; "" when it may."""
    others = len(os.listdir("/proc/self/task")) - 1
    if others:
        return f"The warm parent of workers has {others} more threads than its own, so workers are started without it."
    return ""


def become(start: Start) -> None:
    """Go on as ``python -m`` would, in a session of one's own."""
    os.setsid()
    for path, number in ((start.out, 1), (start.err, 2)):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(file, number)
        os.close(file)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # else all children would draw the same; `random` does so by itself
    show_as([sys.executable, "-m", start.module, *start.argv])
    sys.argv = [str(Path(sys.argv[0])), *start.argv]
    runpy.run_module(start.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    asked = main()
    if asked is None:
        os._exit(0)  # a driver waits for us, and there is nothing to put in order
    become(asked)
