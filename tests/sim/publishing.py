"""The threads of a simulated worker that prepare and publish batches of sinks, one for each
lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millwheel.engine.workers.ports import BackgroundTask
from tests.sim.process import Mailbox

if TYPE_CHECKING:
    from tests.sim.worker import SimWorker


class PublishTask:
    """As :class:`millwheel.engine.workers.threads.aside.PublishThreads`: whoever prepares or
    publishes may be late by any time, and the worker may die when the target has taken the batch
    and nobody has heard of it."""

    def __init__(self, worker: SimWorker) -> None:
        self._worker = worker
        self._lanes: dict[str, Mailbox] = {}

    def publish(self, task: BackgroundTask) -> None:
        name = task.lane
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Mailbox(self._worker)
            self._worker.spawn(lambda: self._run(lane))
        lane.put(task)

    def _run(self, lane: Mailbox) -> None:
        sim = self._worker.sim
        while True:
            task = lane.get()
            # Often at once: what is published too early shows only if its worker dies before the
            # commit.
            self._worker.sleep(sim.delay(5, 100) if sim.chance(0.5) else sim.delay(100, 30_000))
            done = task.carried_out()
            self._worker.sleep(sim.delay(100, 30_000))
            self._worker.post(done)
