"""The services of a run on the driver's machine: ZooKeeper, master and injector, started, kept alive, stopped."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millwheel.adapters.zookeeper_server import EmbeddedZooKeeper
from millwheel.errors import SetupError
from millwheel.launch.address import LOOPBACK, listen_on
from millwheel.launch.child import Child, stop_all
from millwheel.launch.coordinator import embedded_zookeeper
from millwheel.launch.supervisor import Ended

_POLL_S = 0.1
_RESTART_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ServiceTemplate:
    """What master and injector are told."""

    root: str
    zookeeper: str
    pipeline: str
    listen: str = LOOPBACK
    security: str = ""

    def command(self, module: str, *more: str) -> list[str]:
        """The argv of ``python -m module``."""
        return [
            *(sys.executable, "-m", module, "--root", self.root, "--zookeeper", self.zookeeper),
            *("--pipeline", self.pipeline, "--listen", listen_on(self.listen, self.zookeeper)),
            *(("--security", self.security) if self.security else ()),
            *more,
        ]


class Services:
    """Child processes by name. Used by one thread, which outlives them."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: dict[str, Child] = {}

    def start(self, name: str, command: list[str]) -> None:
        """Start (again) the process of that name."""
        self._children[name] = Child(command, self._logs / name)

    def ended(self) -> list[Ended]:
        """Those that ended since the last call."""
        over = [(name, child, code) for name, child in self._children.items() if (code := child.poll()) is not None]
        for name, _, _ in over:
            del self._children[name]
        return [Ended(name, code, child.lived_s(), child.last_words()) for name, child, code in over]

    def pids(self) -> dict[str, int]:
        """The process ids of those that live."""
        return {name: child.pid for name, child in self._children.items()}

    def stop_one(self, name: str, grace_s: float) -> None:
        """Stop the process of that name, if it lives."""
        child = self._children.pop(name, None)
        if child is not None:
            stop_all([child], grace_s)

    def stop(self, grace_s: float) -> None:
        """Stop all of them, in the order in which they were started last."""
        for name in list(self._children):
            stop_all([self._children.pop(name)], grace_s)


class ZooKeeperKeeper:
    """An embedded ZooKeeper with a thread of its own, since starting it takes a second.

    The thread lives as long as the server, which would otherwise be ended together with it.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], host: str = LOOPBACK) -> None:
        self._server: EmbeddedZooKeeper = embedded_zookeeper(str(folder), host=host)
        self._say = say
        self._started = threading.Event()
        self._stop = threading.Event()
        self._error: SetupError | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True, name="zookeeper")
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """The server's process."""
        return self._server.pid

    def start(self) -> str:
        """Start and wait until it serves; its address. Raises SetupError when it does not."""
        self._thread.start()
        self._started.wait()
        self.check()
        return self._server.address

    def check(self) -> None:
        """Raises SetupError when the server died and cannot be brought back."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the server; its data stays."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        try:
            self._server.start()
            self._started.set()
            while not self._stop.wait(_POLL_S):
                if not self._server.alive():
                    self._bring_back()
        except SetupError as error:
            self._error = error
        finally:
            self._started.set()
            self._server.stop()

    def _restart(self) -> None:
        """What killed the server may kill it again while it starts: one failure is not the end of a run."""
        for attempt in range(1, _RESTART_ATTEMPTS + 1):
            try:
                self._server.restart()
                return
            except SetupError:
                if attempt == _RESTART_ATTEMPTS or self._stop.wait(attempt * _POLL_S):
                    raise

    def _bring_back(self) -> None:
        self.restarts += 1
        began_s = time.monotonic()
        self._restart()
        self._say(f"ZooKeeper had died; it serves again after {time.monotonic() - began_s:.1f} s.")
