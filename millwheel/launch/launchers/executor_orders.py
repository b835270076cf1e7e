"""A driver's orders to the tasks that hold its workers in executors, wherever they run: files or
objects on the root.

<root>/stop                         all workers stop
<root>/stop-<slot>                  the worker of a slot is killed, if its process id is the one in
the file s3://.../orders/stop, kill-<slot>-<pid>      the same in an object store
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Protocol

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.adapters.spaces.root_address import in_bucket
from millwheel.control.roots.root import write_atomically
from millwheel.errors import UnavailableError


class Orders(Protocol):
    """Orders that the driver writes and tasks read every ``look_s`` seconds."""

    look_s: float

    def stop(self) -> None:
        """Ask all workers to stop."""

    def kill(self, slot: int, pid: int) -> None:
        """Order the task of a slot to kill its worker, if this is its process."""

    def forget(self) -> None:
        """Remove the orders of an earlier run."""

    def read(self, slot: int, pid: int) -> tuple[bool, bool]:
        """(whether to stop, whether to kill this worker). Orders that cannot be read count as
        absent."""


def orders_at(location: str) -> Orders:
    """The orders on a root: ``location`` is the path of its stop file, or the address of an object
    store."""
    return ObjectOrders(open_space(location)) if in_bucket(location) else FileOrders(Path(location))


class FileOrders:
    """Files beside ``stop_file``."""

    look_s = 0.25

    def __init__(self, stop_file: Path) -> None:
        self._stop_file = stop_file

    def stop(self) -> None:
        self._stop_file.touch()

    def kill(self, slot: int, pid: int) -> None:
        write_atomically(kill_file(self._stop_file, slot), str(pid).encode())

    def forget(self) -> None:
        for path in self._stop_file.parent.glob(f"{self._stop_file.name}*"):
            path.unlink(missing_ok=True)

    def read(self, slot: int, pid: int) -> tuple[bool, bool]:
        try:
            named = kill_file(self._stop_file, slot).read_text() == str(pid)
        except OSError:
            named = False
        return self._stop_file.exists(), named


def kill_file(stop_file: Path, slot: int) -> Path:
    """The file with the id of the process to kill in a slot."""
    return stop_file.with_name(f"{stop_file.name}-{slot}")


class ObjectOrders:
    """Objects below ``orders/``: one listing shows all orders."""

    look_s = 2.0

    def __init__(self, space: ObjectSpace) -> None:
        self._space = space
        self._folder = f"{space.root}/orders"

    def stop(self) -> None:
        self._space.create(f"{self._folder}/stop", b"")

    def kill(self, slot: int, pid: int) -> None:
        self._space.create(f"{self._folder}/kill-{slot}-{pid}", b"")

    def forget(self) -> None:
        for name in self._space.names(self._folder):
            self._space.delete(f"{self._folder}/{name}")

    def read(self, slot: int, pid: int) -> tuple[bool, bool]:
        with suppress(UnavailableError):
            names = self._space.names(self._folder)
            return "stop" in names, f"kill-{slot}-{pid}" in names
        return False, False
