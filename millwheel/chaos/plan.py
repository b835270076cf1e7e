"""Which fault comes when: a function of the seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class Target(str, Enum):
    """What a fault may hit."""

    WORKERS = "workers"
    EXECUTORS = "executors"
    MASTER = "master"
    INJECTOR = "injector"
    ZOOKEEPER = "zookeeper"


class Fault(Enum):
    """What is done to a process."""

    KILL = "kill"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault: ``after_s`` seconds after the one before; ``pick`` in [0, 1) chooses among the processes there are;
    a pause lasts ``lasts_s``."""

    after_s: float
    target: Target
    fault: Fault
    pick: float
    lasts_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for. ``every_s`` is the mean time between two faults, ``pauses`` whether workers are also
    paused, for up to ``longest_pause_s``."""

    targets: Sequence[Target]
    every_s: float
    pauses: bool
    seed: int
    longest_pause_s: float = 20.0

    def blows(self) -> Iterator[Blow]:
        """Faults without end, the kinds of targets in turn."""
        rng = random.Random(self.seed)
        while True:
            for target in rng.sample(list(self.targets), len(self.targets)):
                after = rng.uniform(0.5, 1.5) * self.every_s
                pausable = target in (Target.WORKERS, Target.MASTER, Target.INJECTOR)
                fault = Fault.PAUSE if self.pauses and pausable and rng.random() < 1 / 3 else Fault.KILL
                lasts = rng.uniform(0.1, self.longest_pause_s) if fault is Fault.PAUSE else 0.0
                yield Blow(after, target, fault, rng.random(), lasts)
