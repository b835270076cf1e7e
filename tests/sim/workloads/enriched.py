"""Records that are enriched with tables that end and have no times, divided by their keys or held
whole by each worker: each record gets the row that stands when all of its table has been read,
however the shards of both move meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
    UpsertSpec,
)
from millwheel.core.pipeline.tables import events_of, tabled
from millwheel.core.pipeline.work import BroadcastSpec, EnrichSpec, Missing
from millwheel.engine.workers.operators.broadcast import table
from tests.sim.replacing import replaced
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal, spread

_KEYS = 6


class Enriched(Workload):
    """Orders → their side → what is named by that side → sink."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        own = random.Random(f"enriched {seed}")
        self.missing = own.choice([Missing.KEEP, Missing.DROP])
        self.held = [
            BroadcastSpec(1_000_000) if random.Random(f"held {seed} {n}").random() < 0.5 else None
            for n in range(2)
        ]
        sides = [{"side": own.randrange(_KEYS), "v": n} for n in range(self.count(0, 60))]
        names = [{"name": own.randrange(_KEYS), "v": n} for n in range(self.count(0, 40))]
        orders = [
            {"ts": START_US + n * SECOND // 7, "n": n}
            | {"side": own.randrange(_KEYS), "name": own.randrange(_KEYS)}
            for n in range(self.count(1, 150))
        ]
        self.rows = {
            events_of("sides"): spread(own, sides),
            events_of("names"): spread(own, names),
            "orders": spread(own, orders),
        }

    def spec(self) -> PipelineSpec:
        orders = StreamSpec("orders", _source("orders"), "ts", max_delay_us=SECOND)
        tables = [
            StreamSpec(name, _source(events_of(name)), table=UpsertSpec(by(key)))
            for name, key in (("sides", "side"), ("names", "name"))
        ]
        computations = (
            ComputationSpec(
                "first",
                (InputSpec("orders", by("side")), InputSpec("sides", by("side"))),
                ("sided",),
                EnrichSpec("sides", "of", self.missing, broadcast=self.held[0]),
            ),
            ComputationSpec(
                "second",
                (InputSpec("sided", by("name")), InputSpec("names", by("name"))),
                ("found",),
                EnrichSpec("names", "named", self.missing, broadcast=self.held[1]),
            ),
        )
        sinks = (SinkSpec("found", "memory"),)
        return tabled(PipelineSpec("sim", (orders, *tables), computations, sinks, "/nowhere"))

    def tight(self) -> AbstractContextManager[object]:
        return replaced(table, "_AT_ONCE", 1)

    def check(self) -> None:
        sides, names = self._last("sides", "side"), self._last("names", "name")
        wanted: Counter[Any] = Counter()
        for row in self.all_rows("orders"):
            side, name = sides.get(row["side"]), names.get(row["name"])
            if self.missing is Missing.KEEP or (side is not None and name is not None):
                wanted[row["n"], _value(side), _value(name)] += 1
        found = Counter(
            (row["n"], _value(row["of"]), _value(row["named"])) for row in self.sinks.rows("found")
        )
        equal("enriched", found, wanted)

    def _last(self, stream: str, key: str) -> dict[int, dict[str, Any]]:
        """The last rows by key, of partitions in the order of their names."""
        return {row[key]: row for row in self.all_rows(events_of(stream))}


def _source(stream: str) -> SourceSpec:
    # Of files each worker reads a table that it holds whole: they are the same whenever it does.
    return SourceSpec("files", {"stream": stream})


def _value(row: dict[str, Any] | None) -> int | None:
    return None if row is None else row["v"]
