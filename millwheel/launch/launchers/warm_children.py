"""The driver's side of the warm parent (``warm_parent.py``), which forks the children that
launchers start."""

from __future__ import annotations

import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millwheel.adapters.processes.child import Child, LifeLog, Living, Remains, Scratch
from millwheel.adapters.processes.interpreter import module_command
from millwheel.adapters.processes.libraries import worker_environment
from millwheel.launch.launchers.warm_messages import (
    ROOM,
    Cold,
    Ended,
    Report,
    Signal,
    Start,
    Started,
    decode_report,
    encode,
    line,
    ready,
    receive,
)

_SEND_S = 5.0  # for the parent to take an order; then it counts as hung
_END_S = 5.0  # for the parent to end; then it is killed
KILLED = -int(signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """The parameters of a new child: module and arguments, log files, and a directory that is
    deleted with it ("": none)."""

    module: str
    argv: Sequence[str]
    log: Path
    scratch: str = ""

    @property
    def command(self) -> list[str]:
        """The same as a command of its own."""
        return module_command(self.module, self.argv)


class Children:
    """Starts children of the driver: a warm parent forks them where the system lets processes fork
    (Linux), elsewhere they are executed. The warm parent loads their modules while the driver does
    other work. Used by one thread, which must outlive it."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="millwheel-")
        self._environment = worker_environment()
        self._warm = self._parent()

    def _parent(self) -> WarmParentProcess | None:
        if not sys.platform.startswith("linux"):
            return None
        return WarmParentProcess(Path(self._folder) / "warm", self._environment)

    def start(self, spec: ChildSpec) -> Living:
        """Start a child. Returns before it runs."""
        if self._warm is not None and self._warm.gone:
            self._warm.close()
            self._warm = self._parent()
        if self._warm is not None:
            return self._warm.start(spec)
        return Child(spec.command, spec.log, self._environment, spec.scratch)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the warm parent; its remaining children die with it."""
        if self._warm is not None:
            self._warm.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def executed(spec: ChildSpec) -> Living:
    """A child with a command of its own, in our environment."""
    return Child(spec.command, spec.log, scratch=spec.scratch)


class WarmLine:
    """A line to a warm parent, which forks children for us. Used by one thread, which must outlive
    it."""

    def __init__(self, end: socket.socket, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self._end = end
        self._end.settimeout(_SEND_S)
        self._numbers = 0
        self.pids: dict[int, int] = {}
        self.codes: dict[int, int] = {}
        self.refused: set[int] = set()
        self.gone = False

    def start(self, spec: ChildSpec) -> WarmChild:
        """Request a child. Returns before the child runs."""
        self._numbers += 1
        return WarmChild(self, self._numbers, spec)

    def send(self, request: Start | Signal) -> None:
        """Send a message, if the parent is alive."""
        try:
            self._end.send(encode(request))
        except OSError:
            self.gone = True

    def read_messages(self, wait_s: float = 0.0) -> None:
        """Process the messages of the parent; wait up to this long for the first one."""
        while not self.gone and ready((self._end.fileno(),), max(0.0, wait_s)):
            wait_s = 0.0
            data = receive(self._end)
            if not data:
                self.gone = True
                return
            self._note(decode_report(data))

    def _note(self, report: Report) -> None:
        if isinstance(report, Started):
            self.pids[report.number] = report.pid
        elif isinstance(report, Ended):
            self.codes[report.number] = report.code
        elif isinstance(report, Cold):
            self.refused.add(report.number)


class WarmParentProcess(WarmLine):
    """A warm parent of our own."""

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        end, theirs = line()
        super().__init__(end, environment)
        with theirs:
            self._process = warm_parent(theirs, log, environment)

    def close(self) -> None:
        """End the parent; its remaining children die with it."""
        self._end.close()
        self.gone = True
        if self._process.wait(_END_S) is None:
            self._process.kill()
            self._process.wait(_END_S)


def warm_parent(
    end: socket.socket, log: Path, environment: Mapping[str, str], *arguments: str
) -> Child:
    """Execute a warm parent that serves the other end of this line."""
    module = "millwheel.launch.launchers.warm_parent"
    command = module_command(module, (str(end.fileno()), *arguments, ROOM))
    return Child(command, log, environment, pass_fds=(end.fileno(),))


class WarmChild:
    """A child of a warm parent. When the parent may not fork, or is gone before it has, the child
    is executed."""

    def __init__(self, parent: WarmLine, number: int, spec: ChildSpec) -> None:
        self._parent = parent
        self._number = number
        self._spec = spec
        self._log = LifeLog(spec.log)
        self._started_s = time.monotonic()
        self._executed: Child | None = None
        self._scratch = Scratch(spec.scratch)
        parent.send(
            Start(number, spec.module, tuple(spec.argv), str(self._log.err), str(self._log.out))
        )

    @property
    def pid(self) -> int:
        """See :class:`millwheel.adapters.processes.child.Living`."""
        if self._executed is not None:
            return self._executed.pid
        self._parent.read_messages()
        return self._parent.pids.get(self._number, 0)

    def poll(self) -> int | None:
        """See :class:`millwheel.adapters.processes.child.Living`."""
        self._parent.read_messages()
        return self._code()

    def lived_s(self) -> float:
        """See :class:`millwheel.adapters.processes.child.Living`."""
        return time.monotonic() - self._started_s

    def terminate(self) -> None:
        """See :class:`millwheel.adapters.processes.child.Living`."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """See :class:`millwheel.adapters.processes.child.Living`."""
        self._signal(signal.SIGKILL)

    def wait(self, seconds: float) -> int | None:
        """See :class:`millwheel.adapters.processes.child.Living`."""
        until_s = time.monotonic() + seconds
        while (code := self.poll()) is None and (left_s := until_s - time.monotonic()) > 0:
            if self._executed is not None:
                return self._executed.wait(left_s)
            self._parent.read_messages(left_s)
        return code

    def last_words(self) -> str:
        """See :class:`millwheel.adapters.processes.child.Living`."""
        return self._log.last_words()

    def _code(self) -> int | None:
        if self._executed is not None:
            return self._executed.poll()
        if self._number in self._parent.refused:
            return self._execute()
        code = self._parent.codes.get(self._number)
        if code is None and self._parent.gone:
            if not self.pid:
                return self._execute()
            code = KILLED  # children die with their parent
        if code is not None:
            self._scratch.ended()
        return code

    def remains(self) -> Remains:
        """See :class:`millwheel.adapters.processes.child.Living`."""
        return self._scratch.remains if self._executed is None else self._executed.remains()

    def _execute(self) -> int | None:
        spec = self._spec
        self._executed = Child(spec.command, spec.log, self._parent.environment, spec.scratch)
        return self._executed.poll()

    def _signal(self, number: int) -> None:
        if self._executed is None:
            self._parent.send(Signal(self._number, number))
        elif number == signal.SIGKILL:
            self._executed.kill()
        else:
            self._executed.terminate()
