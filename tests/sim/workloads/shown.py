"""A sink that shows rows before they are committed: each at least once, and nothing that did not
come to stay."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from millwheel.api import Computation, ValueState
from millwheel.core.pipeline.spec import (
    InputSpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from tests.computations import computation_spec
from tests.sim.kernel import Failure
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal


class Numbering(Computation):
    """Numbers the records of each key."""

    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.seen.set(self.seen.get() + 1)
        ctx.produce("numbered", {**record.value, "number": self.seen.get()})


class Shown(Workload):
    """Sources → numbering per key → a sink that shows at once."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.code = {"sim:Numbering": Numbering}
        self.keys = self.rng.choice([1, 3, 20])
        self.rows = {"events": {f"p{i}": self._partition(i) for i in range(self.rng.randint(1, 4))}}

    def _partition(self, number: int) -> list[Any]:
        keys = [f"k{self.rng.randrange(self.keys)}" for _ in range(self.count(1, 120))]
        return [
            {"key": key, "n": n, "p": number, "ts": START_US + n * SECOND // 10}
            for n, key in enumerate(keys)
        ]

    def spec(self) -> PipelineSpec:
        source = SourceSpec("memory", {"stream": "events"})
        stream = StreamSpec("events", source, timestamp="ts", max_delay_us=SECOND)
        numbering = computation_spec(
            "numbering",
            (InputSpec("events", by("key")),),
            ("numbered",),
            callback="sim:Numbering",
            delivery=self.delivery,
            productions=self.productions,
        )
        return PipelineSpec(
            "sim", (stream,), (numbering,), (SinkSpec("numbered", "at_once"),), "/nowhere"
        )

    def check(self) -> None:
        rows = [row for rows in self.rows["events"].values() for row in rows]
        shown = {tuple(row.items()) for row in self.sinks.rows("numbered")}
        found = [dict(row) for row in shown]
        equal(
            "records",
            Counter({(r["p"], r["n"]): 1 for r in found}),
            Counter((r["p"], r["n"]) for r in rows),
        )
        if self.productions is Productions.WEAK:
            return
        by_number: dict[tuple[str, int], list[Any]] = defaultdict(list)
        for row in found:
            by_number[row["key"], row["number"]].append((row["p"], row["n"]))
        for index, several in by_number.items():
            if len(several) > 1:
                raise Failure(f"what is shown came to stay: {index} was shown as {several}")
        per_key = Counter(row["key"] for row in rows)
        numbers = Counter(
            (key, number + 1) for key, count in per_key.items() for number in range(count)
        )
        equal("numbers", Counter(by_number.keys()), numbers)
