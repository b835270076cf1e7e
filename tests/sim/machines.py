"""Machines that differ: what they state as their weights, what a record takes them, and how much
memory is left."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from millwheel.control.master.balance import BalanceConfig
from millwheel.control.master.events import ShardLoad
from millwheel.control.master.speeds import SpeedConfig
from millwheel.engine.workers.ports import ShardWork
from tests.sim.kernel import SECOND, START_US


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines of the slots, drawn from ``seed``; 0: all are equal, and records take no
    time."""

    seed: int = 0

    @property
    def balance(self) -> BalanceConfig:
        """How the master balances them: in much less time than it has outside, as all else."""
        quick = BalanceConfig(steady=1, certain=1, look_us=100_000, rest_us=200_000)
        return replace(quick, idle=1, relief_us=300_000, remember_us=SECOND)

    @property
    def speeds(self) -> SpeedConfig:
        """How it finds slow ones."""
        quick = SpeedConfig(records=3, work_us=100, busy=0.01, steady_us=1)
        return replace(quick, look_us=100_000, warm_us=0, patience_us=SECOND)

    @property
    def load_us(self) -> int:
        """How often workers report their loads."""
        return SECOND // 10 if self.seed else SECOND

    def weight(self, slot: int) -> int:
        """What a machine states."""
        return self._drawn("weight", slot).choice([1, 1, 2, 5]) if self.seed else 1

    def cost_us(self, slot: int, now_us: int) -> int:
        """What a record takes at this time: it changes every two seconds."""
        return self._drawn("cost", slot, now_us // (2 * SECOND)).choice(
            [1_000, 1_000, 4_000, 20_000]
        )

    def memory(self, slot: int, now_us: int) -> float:
        """The used share of the memory at this time: it changes every second."""
        drawn = self._drawn("memory", slot, now_us // SECOND)
        return drawn.choice([0.3, 0.5, 0.85, 0.92, 0.97]) if self.seed else 0.0

    def _drawn(self, *what: object) -> random.Random:
        return random.Random(f"{self.seed} {what}")


EQUAL = Machines()


@dataclass(frozen=True, slots=True)
class Straggler(Machines):
    """Equal machines, of which that of slot 0 takes ``times`` as long in some ``spells`` (µs since
    the start), and a master that balances at the pace of real ones."""

    spells: tuple[tuple[int, int], ...] = ()
    times: int = 4
    each_us: int = 15_000

    @property
    def balance(self) -> BalanceConfig:
        return BalanceConfig()

    @property
    def speeds(self) -> SpeedConfig:
        return SpeedConfig(records=2, warm_us=3 * SECOND)

    @property
    def load_us(self) -> int:
        return SECOND

    def weight(self, slot: int) -> int:
        return 1

    def cost_us(self, slot: int, now_us: int) -> int:
        slow = slot == 0 and any(first <= now_us - START_US < last for first, last in self.spells)
        return self.each_us * (self.times if slow else 1)

    def memory(self, slot: int, now_us: int) -> float:
        return 0.0


class Effort:
    """What one worker reports as its work: the clock stands still while shards run, so it is
    reckoned."""

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
