"""A sink whose target has transactions: numbers per key appear once, in the order of their batches,
although the target is away at times and its answers are lost."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from tests.sim.workloads.shown import Shown


class Transactional(Shown):
    """Sources → numbering per key → a sink that publishes in order, aside."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        target = self.sinks.target
        target.rng = random.Random(seed ^ 0x7A6)
        target.trouble = target.rng.choice([0, 0.05, 0.5])
        # far below the share at which a sink stops the run
        self.unwanted = target.rng.choice([0, 23])
        target.refuses = self._refused
        target.names = random.Random(seed ^ 0x4A1F).random() < 0.5

    def _refused(self, row: Any) -> bool:
        return bool(self.unwanted) and row["n"] % self.unwanted == 3

    def spec(self) -> PipelineSpec:
        return replace(
            super().spec(),
            sinks=(SinkSpec("numbered", "transactional"), SinkSpec("dead_letters", "memory")),
        )

    def check(self) -> None:
        self.check_committed(self.sinks.rows("numbered"), self._refused)
