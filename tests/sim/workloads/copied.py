"""Records that are enriched with copies of a table that goes on: each gets the row of its key as of
its own time, however the shards of the table and of its copies are moved, split and merged."""

from __future__ import annotations

import random
from collections import Counter
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
from millwheel.core.pipeline.tables import events_of, tabled, with_copies
from millwheel.core.pipeline.work import BroadcastSpec, EnrichSpec, Missing
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal, spread

_KEYS = 6


class Copied(Workload):
    """Orders → their price as of their time → sink."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        own = random.Random(f"copied {seed}")
        self.missing = own.choice([Missing.KEEP, Missing.DROP])
        self.copies = own.choice([2, 5])
        step = SECOND // 7
        prices = [
            {"ts": START_US + 2 * n * step, "item": own.randrange(_KEYS), "v": n}
            | {"gone": own.random() < 0.2}
            for n in range(self.count(1, 70))
        ]
        orders = [
            {"ts": START_US + n * step, "n": n, "item": own.randrange(_KEYS)}
            for n in range(self.count(1, 150))
        ]
        self.rows = {
            events_of("prices"): spread(own, prices),
            "orders": spread(own, orders),
        }

    def spec(self) -> PipelineSpec:
        # Silence lets the watermark pass what is written later, and how far differs.
        timely: dict[str, Any] = {"max_delay_us": SECOND, "idle_after_us": None}
        orders = StreamSpec("orders", _source("orders"), "ts", **timely)
        table = UpsertSpec(by("item"), "gone")
        prices = StreamSpec("prices", _source(events_of("prices")), "ts", table=table, **timely)
        computation = ComputationSpec(
            "priced",
            (InputSpec("orders", by("item")), InputSpec("prices", by("item"))),
            ("priced",),
            EnrichSpec(
                "prices",
                "price",
                self.missing,
                broadcast=BroadcastSpec(1_000_000, copies=self.copies),
            ),
        )
        sinks = (SinkSpec("priced", "memory"),)
        spec = PipelineSpec("sim", (orders, prices), (computation,), sinks, "/nowhere")
        return with_copies(tabled(spec))

    def check(self) -> None:
        prices = sorted(self.all_rows(events_of("prices")), key=lambda row: row["ts"])
        wanted: Counter[Any] = Counter()
        for row in self.all_rows("orders"):
            before = [
                each for each in prices if each["item"] == row["item"] and each["ts"] <= row["ts"]
            ]
            value = before[-1]["v"] if before and not before[-1]["gone"] else None
            if value is not None or self.missing is Missing.KEEP:
                wanted[row["n"], value] += 1
        found = Counter(
            (row["n"], row["price"] and row["price"]["v"]) for row in self.sinks.rows("priced")
        )
        equal("priced", found, wanted)


def _source(stream: str) -> SourceSpec:
    return SourceSpec("files", {"stream": stream})
