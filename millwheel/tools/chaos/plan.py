"""Which fault comes when: a function of the seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

_HOST_AWAY_S = 5.0  # at least, so that the others notice


class Target(str, Enum):
    """The kinds of processes that a fault may hit."""

    WORKERS = "workers"
    HOSTS = "hosts"
    EXECUTORS = "executors"
    MASTER = "master"
    INJECTOR = "injector"
    ZOOKEEPER = "zookeeper"


class Fault(Enum):
    """A fault of a process, or of all workers of a host. PARTITION cuts a worker off: it runs, but
    nothing it sends or is sent arrives."""

    KILL = "kill"
    PAUSE = "pause"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault: ``after_s`` seconds after the one before; ``pick`` in [0, 1) chooses among the
    processes there are; a pause or a partition lasts ``lasts_s``, and a killed host is away for as
    long."""

    after_s: float
    target: Target
    fault: Fault
    pick: float
    lasts_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of the user. ``every_s`` is the mean time between two faults, ``pauses`` whether
    processes are also paused, ``partitions`` whether workers are also cut off from all others, both
    for up to ``longest_pause_s``. If ``one_by_one``, a fault waits until the one before has been
    recovered from, and hits a process that has work."""

    targets: Sequence[Target]
    every_s: float
    pauses: bool
    seed: int
    longest_pause_s: float = 20.0
    partitions: bool = False
    one_by_one: bool = False

    def faults(self) -> Iterator[PlannedFault]:
        """Faults without end, the kinds of targets in turn."""
        rng = random.Random(self.seed)
        while True:
            for target in rng.sample(list(self.targets), len(self.targets)):
                after = rng.uniform(0.5, 1.5) * self.every_s
                fault = self._fault(target, rng)
                lasts = 0.0 if fault is Fault.KILL else rng.uniform(0.1, self.longest_pause_s)
                if target is Target.HOSTS:
                    lasts = rng.uniform(_HOST_AWAY_S, 2 * _HOST_AWAY_S)
                yield PlannedFault(after, target, fault, rng.random(), lasts)

    def _fault(self, target: Target, rng: random.Random) -> Fault:
        pausable = self.pauses and target in (Target.WORKERS, Target.MASTER, Target.INJECTOR)
        separable = self.partitions and target is Target.WORKERS
        drawn = rng.random() if pausable or separable else 0.5
        if pausable and drawn < 1 / 3:
            return Fault.PAUSE
        return Fault.PARTITION if separable and drawn > 2 / 3 else Fault.KILL
