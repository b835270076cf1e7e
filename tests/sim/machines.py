"""Machines that differ: what they state as their weights, what a record takes them, and how much memory is left."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from millwheel.master.events import ShardLoad
from millwheel.workers.ports import ShardWork
from tests.sim.kernel import SECOND


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines of the slots, drawn from ``seed``; 0: all are equal, and records take no time."""

    seed: int = 0

    @property
    def load_us(self) -> int:
        """How often workers report their loads."""
        return SECOND // 10 if self.seed else SECOND

    def weight(self, slot: int) -> int:
        """What a machine states."""
        return self._drawn("weight", slot).choice([1, 1, 2, 5]) if self.seed else 1

    def cost_us(self, slot: int, now_us: int) -> int:
        """What a record takes at this time: it changes every two seconds."""
        return self._drawn("cost", slot, now_us // (2 * SECOND)).choice([1_000, 1_000, 4_000, 20_000])

    def memory(self, slot: int, now_us: int) -> float:
        """The used share of the memory at this time: it changes every second."""
        drawn = self._drawn("memory", slot, now_us // SECOND)
        return drawn.choice([0.3, 0.5, 0.85, 0.92, 0.97]) if self.seed else 0.0

    def _drawn(self, *what: object) -> random.Random:
        return random.Random(f"{self.seed} {what}")


EQUAL = Machines()


class Effort:
    """What one worker reports as its work: the clock stands still while shards run, so it is reckoned."""

    def __init__(self, machines: Machines, slot: int) -> None:
        self._machines, self._slot = machines, slot
        self._records: Counter[tuple[str, int]] = Counter()
        self._busy_us: Counter[tuple[str, int]] = Counter()

    def reported(self, loads: Iterable[ShardWork], now_us: int) -> tuple[ShardLoad, ...]:
        """The loads of shards at this time."""
        return tuple(self._reckoned(load, now_us) for load in loads)

    def memory(self, now_us: int) -> float:
        """The used share of the memory."""
        return self._machines.memory(self._slot, now_us)

    def _reckoned(self, work: ShardWork, now_us: int) -> ShardLoad:
        index = (work.shard, work.token)
        if self._machines.seed:
            done = work.records - self._records[index]
            self._records[index] = work.records
            self._busy_us[index] += done * self._machines.cost_us(self._slot, now_us)
        return ShardLoad(
            shard=work.shard,
            token=work.token,
            records=work.records,
            state_bytes=0,
            busy_us=work.busy_us + self._busy_us[index],
            sample=work.sample,
        )
