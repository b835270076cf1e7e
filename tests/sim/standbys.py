"""A worker's standbys in the simulator: rounds as a task, takeovers as part of the story."""

from __future__ import annotations

from typing import Any

from millwheel.adapters.ports import StateStore
from millwheel.core.model.range_table import ShardEntry
from millwheel.engine.workers.recovery.following import Following, Standbys
from tests.sim.process import Process


class ToldStandbys(Standbys):
    """Standbys whose takeovers are part of the story."""

    def __init__(self, worker: Process, parts: Following) -> None:
        super().__init__(parts)
        self._worker = worker

    def take(self, entry: ShardEntry) -> StateStore | None:
        at = self.standing().get(entry.shard)
        store = super().take(entry)
        if at is not None:
            how = "cannot take" if store is None else "takes"
            self._worker.sim.trace(
                f"{self._worker.name} {how} {entry.shard}, which it followed to commit {at[1]}",
                *(self._worker.name, entry.shard),
            )
        return store


class StandbyTask:
    """Rounds of followers, see :class:`millwheel.engine.workers.threads.recovery.StandbyThread`."""

    def __init__(self, worker: Process, standbys: Standbys) -> None:
        self._worker, self._standbys = worker, standbys
        self._going = False

    def follow(self, entry: Any) -> None:
        self._standbys.follow(entry)
        if not self._going:
            self._going = True
            self._worker.spawn(self._run)

    def drop(self, shard: str) -> None:
        self._standbys.drop(shard)

    def _run(self) -> None:
        worker = self._worker
        while True:
            self._standbys.round()
            worker.sleep(worker.sim.delay(200, 30_000))
