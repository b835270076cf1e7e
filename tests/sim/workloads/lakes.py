"""A sink whose rows are committed to a table by the real committers: numbers per key appear once,
although commits are slow, conflict, are not answered, and their client panics."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from tests.sim.lake import Lake, lake_sinks
from tests.sim.workloads.base import SECOND
from tests.sim.workloads.shown import Shown

_INTS = ("n", "p", "ts", "number", "weight")
_SCHEMA = pa.schema([("key", pa.string()), *((name, pa.int64()) for name in _INTS)])


class Lakes(Shown):
    """Sources → numbering per key → a table. Some rows do not fit into it."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.lake = Lake(_SCHEMA, seed)
        own = random.Random(f"rows of the lake of {seed}")
        self.flush = own.choice(["20ms", "300ms"])
        self.settle_us = SECOND
        unwanted = own.choice([0, 23])  # far below the share at which a sink stops the run
        for partition in self.rows["events"].values():
            for row in partition:
                row["weight"] = "many" if unwanted and row["n"] % unwanted == 3 else 1

    def _sinks(self) -> Callable[[SinkSpec, str], Any]:
        of_lake = lake_sinks(self.lake, self.flush)
        return lambda spec, folder: (
            of_lake() if spec.kind == "lake" else self.sinks.build(spec, folder)
        )

    def spec(self) -> PipelineSpec:
        return replace(
            super().spec(), sinks=(SinkSpec("numbered", "lake"), SinkSpec("dead_letters", "memory"))
        )

    def check(self) -> None:
        self.check_committed(self.lake.rows, lambda row: row["weight"] == "many")
