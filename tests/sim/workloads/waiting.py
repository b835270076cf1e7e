"""Records that wait for the watermark in columns: for their order, and for the version of their own
time, however their shards move, split and merge meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import EnrichSpec, Missing, StepKind, StepSpec, StepsSpec
from millwheel.engine.workers.operators import waiting
from tests.sim.replacing import replaced
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal

_FIELDS = {"k": "str", "n": "int", "ts": "int"}
_KEYS = 5


class Waiting(Workload):
    """Orders, in the order of their times → what they cost then → sink."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        own = random.Random(f"waiting {seed}")
        self.columns = _FIELDS
        self.limits = replace(
            self.limits, bundle=own.choice([7, 40]), columns_from=1, rows_below=own.choice([0, 4])
        )
        self.missing = own.choice([Missing.KEEP, Missing.DROP])
        self.most_bytes = own.choice([200, 2_000, 64 << 20])
        self.rows = {
            "orders": self._records(own, self.count(1, 150)),
            "prices": self._records(own, self.count(0, 60)),
        }

    def _records(self, rng: random.Random, count: int) -> dict[str, list[Any]]:
        names = [f"p{number}" for number in range(rng.randint(1, 3))]
        found: dict[str, list[Any]] = {name: [] for name in names}
        for n in range(count):
            # No two versions of one time: which counts then would depend on their channels.
            late_us = rng.randrange(SECOND // 4) // 256 * 256 + n % 256
            at = (START_US + n * SECOND // 7) // 256 * 256 + late_us
            found[rng.choice(names)].append({"k": f"k{rng.randrange(_KEYS)}", "n": n, "ts": at})
        return found

    @contextmanager
    def tight(self) -> Iterator[None]:
        with (
            replaced(waiting, "_FAN", 2),
            replaced(waiting, "_MOST_BYTES", self.most_bytes),
        ):
            yield

    def spec(self) -> PipelineSpec:
        timely: dict[str, Any] = {"max_delay_us": SECOND, "idle_after_us": None}
        streams = tuple(
            StreamSpec(name, SourceSpec("files", {"stream": name}), "ts", fields=_FIELDS, **timely)
            for name in ("orders", "prices")
        )
        step = StepSpec(StepKind.MAP, fields={"k": "k", "n": "n", "twice": "n * 2"})
        computations = (
            ComputationSpec(
                "sorted",
                (InputSpec("orders", by("k")),),
                ("sorted",),
                StepsSpec((step,)),
                ordered=True,
            ),
            ComputationSpec(
                "priced",
                (InputSpec("sorted", by("k")), InputSpec("prices", by("k"))),
                ("priced",),
                EnrichSpec("prices", "price", self.missing),
            ),
        )
        sinks = tuple(SinkSpec(name, "memory") for name in ("priced", "dead_letters"))
        return PipelineSpec("sim", streams, computations, sinks, "/nowhere")

    def check(self) -> None:
        prices = sorted(self.all_rows("prices"), key=lambda row: row["ts"])
        wanted: Counter[Any] = Counter()
        for row in self.all_rows("orders"):
            known = [each for each in prices if each["k"] == row["k"] and each["ts"] <= row["ts"]]
            price = known[-1]["n"] if known else None
            if self.missing is Missing.KEEP or known:
                wanted[row["n"], 2 * row["n"], price] += 1
        found = Counter(
            (row["n"], row["twice"], row["price"] and row["price"]["n"])
            for row in self.sinks.rows("priced")
        )
        equal("priced", found, wanted)
        letters = Counter(letters=len(self.sinks.rows("dead_letters")))
        equal("dead_letters", letters, Counter(letters=0))
