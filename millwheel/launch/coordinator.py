"""The coordination of a run: a ZooKeeper that the user named, an embedded one, or the coordinator
inside the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from millwheel.adapters.grpc.security import load_security
from millwheel.adapters.processes.address import EMBEDDED, LOOPBACK
from millwheel.adapters.processes.lifeline import child_environment, mortal
from millwheel.adapters.zookeeper.server import EmbeddedZooKeeper
from millwheel.control.coordinator.server import CoordinatorServer
from millwheel.errors import SetupError
from millwheel.launch.launchers.java import find_java
from millwheel.launch.settings import RunSettings

_POLL_S = 0.1  # between looks at the coordinator
_RESTART_ATTEMPTS = 5  # starts of a coordinator that ends at once
_ZOOKEEPER_FOLDER = "zookeeper"
_COORDINATOR_FILE = "coordinator.db"


class Keeper(Protocol):
    """A coordinator that this run starts and stops."""

    @property
    def restarts(self) -> int:
        """How often the server died and was restarted."""

    def start(self) -> str:
        """Start it, wait until it serves, and return its address. Raises SetupError when it does
        not start."""

    def check(self) -> None:
        """Raise MillwheelError when the coordinator has ended for good."""

    def stop(self) -> None:
        """End it; its data stays."""


def coordinator_for(
    settings: RunSettings, root: Path, announce: Callable[[str], None], security: str = ""
) -> Keeper | None:
    """The coordinator of a run with its root in this folder; None when ``--zookeeper`` names a
    server. ``security`` is the folder with the token of the run, or "".

    A root keeps the coordinator that it began with. A new root gets the coordinator in the driver
    if its workers are on this machine (as plain processes or in a Spark of the run's own), else an
    embedded ZooKeeper.
    """
    if settings.zookeeper not in ("", EMBEDDED):
        return None
    local, java = root / _COORDINATOR_FILE, root / _ZOOKEEPER_FOLDER
    if settings.zookeeper == EMBEDDED and local.exists():
        raise SetupError(
            f"The root {root} has its coordinator in {_COORDINATOR_FILE}, and cannot change to"
            f" ZooKeeper: leave out --zookeeper {EMBEDDED}, or go on with a new root from a"
            " savepoint"
        )
    here = not settings.far and settings.zookeeper != EMBEDDED
    if local.exists() or (here and not java.exists()):
        return LocalKeeper(local, security)
    return ZooKeeperKeeper(java, announce)


class LocalKeeper:
    """The coordinator inside the driver, which dies only with the driver."""

    restarts = 0

    def __init__(self, path: Path, security: str = "") -> None:
        self._path = path
        self._security = security
        self._server: CoordinatorServer | None = None

    def start(self) -> str:
        """See :class:`Keeper`."""
        credentials = load_security(self._security)
        self._server = CoordinatorServer(self._path, credentials.token if credentials else "")
        return self._server.start()

    def check(self) -> None:
        """See :class:`Keeper`."""
        if self._server is not None:
            self._server.check()

    def stop(self) -> None:
        """See :class:`Keeper`."""
        if self._server is not None:
            self._server.stop()


def embedded_zookeeper(data_dir: str, port: int = 0, host: str = LOOPBACK) -> EmbeddedZooKeeper:
    """A server below ``data_dir``, not started yet. Start it from a thread that lives as long as
    the run.

    Raises SetupError when there is no Java.
    """
    return EmbeddedZooKeeper(data_dir, mortal([find_java()]), child_environment(), port, host=host)


class ZooKeeperKeeper:
    """An embedded ZooKeeper with a thread of its own, since starting it takes a second.

    The thread must live as long as the server, because the server dies with it.
    """

    def __init__(self, folder: Path, announce: Callable[[str], None], host: str = LOOPBACK) -> None:
        self._server: EmbeddedZooKeeper = embedded_zookeeper(str(folder), host=host)
        self._announce = announce
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
        """Start it, wait until it serves, and return its address. Raises SetupError when it does
        not start."""
        self._thread.start()
        self._started.wait()
        self.check()
        return self._server.address

    def check(self) -> None:
        """Raise SetupError when the server died and cannot be restarted."""
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
        """Restart the server, with several attempts: the cause of its death may kill it again while
        it starts."""
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
        self._announce(
            f"ZooKeeper had died; it serves again after {time.monotonic() - began_s:.1f} s."
        )
