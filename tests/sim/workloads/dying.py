"""Callbacks and input that end their worker, while workers are killed from outside as well: a
letter for each of those, and none for anything that was in progress at a kill."""

from __future__ import annotations

import random
from typing import Any

from millwheel.connect.sources.base import Chunk, Partition, Reject
from millwheel.core.model.limits import Limits
from tests.sim.dying import ENDS, die
from tests.sim.outside import MemoryReader, MemorySource
from tests.sim.workloads.base import SECOND
from tests.sim.workloads.hanging import LINE, Hanging

_MOST_SLOW = 3  # so many records take so long that kills find them in progress


class Dying(Hanging):
    """What hangs there ends its worker here. Also lines of the input do, when they are read."""

    hangs = False
    dies = True
    timeout_us = 10 * SECOND
    slow_us = SECOND // 2

    def __init__(self, seed: int, size: float = 1.0) -> None:
        own = random.Random(f"deaths {seed}")
        self.how = own.choice(sorted(ENDS))
        super().__init__(seed, size)
        self.given = Limits(callback_us=self.timeout_us)
        everything = self.all_rows("events")
        for row in [row for row in everything if row["does"] == "slow"][_MOST_SLOW:]:
            row["does"] = ""
        for row in _some(own, [row for row in everything if not row["does"]]):
            row["does"] = LINE

    def _source(self, rows: dict[str, list[Any]]) -> MemorySource:
        return _MinedSource(rows, self._released, self.how)

    def _is_about(self, reason: str, what: str) -> bool:
        return f"each time this {what} was processed, 2 times alone" in reason


def _some(rng: random.Random, rows: list[Any]) -> list[Any]:
    """One of these, or none."""
    return rng.sample(rows, min(rng.choice([0, 0, 1]), len(rows)))


class _MinedSource(MemorySource):
    """Some of its lines end whoever decodes them."""

    def __init__(self, rows: Any, released: Any, how: str) -> None:
        super().__init__(rows, released)
        self._how = how

    def open(self, partition: Partition) -> MemoryReader:
        return _MinedReader(self.rows[partition.name], self._released, self._how)


class _MinedReader(MemoryReader):
    def __init__(self, rows: list[Any], released: Any, how: str) -> None:
        super().__init__(rows, released, 1)
        self._how = how

    def read(self, position: int, max_records: int) -> Chunk:
        chunk = super().read(position, max_records)
        if any(row["does"] == LINE for row in chunk.values):
            die(self._how)
        return chunk

    def skip(self, position: int) -> Chunk:
        chunk = super().read(position, 1)
        rejects = [
            Reject(at, row, "") for at, row in zip(chunk.positions, chunk.values, strict=True)
        ]
        return Chunk([], [], chunk.next_position, rejects, chunk.finished)
