"""Workers that end of themselves, and the driver that sees how each of them has ended."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, cast

import greenlet

from millwheel.adapters.processes.child import Remains
from millwheel.engine.workers.bundle.work_note import DoingNote
from millwheel.launch.launchers.base import WorkerExit
from millwheel.launch.watch import Deaths
from tests.sim.hanging import never_return
from tests.sim.process import Process, Task

if TYPE_CHECKING:
    from tests.sim.worker import SimWorker
    from tests.sim.world import World

_NOTE_BYTES = 1 << 14
# until the driver has seen an end; the next owner may have opened by then
_SEES_US = (1_000, 600_000)

ENDS = {"crash": -signal.SIGSEGV, "exit": 1, "memory": -signal.SIGKILL}
"""The ways in which a callback ends its worker: exit codes. The last one is the kernel's, for lack
of memory."""


def die(how: str) -> None:
    """In a callback or a reader: its worker ends."""
    worker = cast("SimWorker", cast("Task", greenlet.getcurrent()).process)
    if worker.alive:
        worker.sim.trace(f"{worker.name} ends of itself ({how})", worker.name)
        worker.code, worker.lacked_memory = ENDS[how], how == "memory"
        worker.end()
    never_return()


class SimDoingNote(DoingNote):
    """The note of one worker, in memory that its driver can read."""

    def __init__(self) -> None:
        self._map = bytearray(_NOTE_BYTES)  # type: ignore[assignment]
        self._now = b""

    def left(self) -> bytes:
        """What is in it when the worker is dead."""
        return bytes(self._map)


class SimDriver(Process):
    """Notes deaths of workers in the root, some time after them (see
    :mod:`millwheel.launch.watch`)."""

    def __init__(self, world: World) -> None:
        super().__init__(world.sim, "driver")
        self._deaths = Deaths(
            world.storage.notes(self), lambda said: self.sim.trace(said, self.name)
        )

    def saw(self, worker: SimWorker) -> None:
        """A worker has ended."""
        assert worker.doing is not None
        left = Remains(worker.doing.left(), worker.lacked_memory)
        gone = WorkerExit(worker.slot, worker.code, 1.0, remains=left)
        self.spawn(lambda: self._note(gone))

    def _note(self, gone: WorkerExit) -> None:
        self.sleep(self.sim.delay(*_SEES_US))
        self._deaths.ended(gone)
