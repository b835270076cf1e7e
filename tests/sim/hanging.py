"""Callbacks that take long or never return, and the watchdog of a simulated worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import greenlet

from millwheel.adapters.processes.exits import Exit
from millwheel.engine.workers.bundle.hangs import Hangs
from millwheel.engine.workers.host.watchdog import Looks
from millwheel.errors import MillwheelError
from tests.sim.process import Task

if TYPE_CHECKING:
    from tests.sim.worker import SimWorker

_STEP_US = 1_000


def take(for_us: int) -> None:
    """In a callback: it takes so long, in small steps, so that it is slow while its process is."""
    process = cast("Task", greenlet.getcurrent()).process
    for _ in range(for_us // _STEP_US):
        process.sleep(_STEP_US)


def never_return() -> None:
    """In a callback: only the end of the process ends it."""
    while True:
        greenlet.getcurrent().parent.switch()


class WatchdogTask:
    """Looks at the calls of one worker, writes down what did not return, and ends the worker (see
    :class:`millwheel.engine.workers.host.watchdog.Watchdog`)."""

    def __init__(self, worker: SimWorker, hangs: Hangs, timeout_us: int) -> None:
        self._worker, self._hangs = worker, hangs
        self._looks = Looks(hangs, timeout_us)
        worker.spawn(self._run)

    def _run(self) -> None:
        worker = self._worker
        while True:
            worker.sleep(self._looks.period_us)
            hang = self._trying(lambda: self._looks.look(lambda: "a line"))
            if hang is not None:
                worker.sim.trace(
                    f"{worker.name} hung on a {hang.what} of {hang.key} in {hang.shard}",
                    worker.name,
                    hang.shard,
                )
                self._trying(lambda: self._hangs.write(hang))
                worker.code = Exit.HUNG
                worker.end()
                return

    def _trying(self, work: Callable[[], Any]) -> Any:
        """What the store does not do is not done; the call is then made again."""
        try:
            return work()
        except (MillwheelError, OSError) as ex:
            self._worker.sim.trace(f"{self._worker.name}: the watchdog: {ex}", self._worker.name)
            return None
