"""A sink that shows rows before they are committed: each at least once, and nothing that did not
come to stay; and one of another system, whose transactions fail."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
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
        rows = self.all_rows("events")
        shown = {tuple(row.items()) for row in self.sinks.rows("numbered")}
        found = [dict(row) for row in shown]
        equal("records", Counter({*_named(found)}), _named(rows))
        if self.productions is Productions.WEAK:
            return
        by_number: dict[tuple[str, int], list[Any]] = defaultdict(list)
        for row in found:
            by_number[row["key"], row["number"]].append((row["p"], row["n"]))
        for index, several in by_number.items():
            if len(several) > 1:
                raise Failure(f"what is shown came to stay: {index} was shown as {several}")
        equal("numbers", Counter(by_number.keys()), self._numbers())

    def _numbers(self) -> Counter[Any]:
        """Each key with each number of its records."""
        per_key = Counter(row["key"] for row in self.all_rows("events"))
        return Counter((key, n + 1) for key, count in per_key.items() for n in range(count))

    def check_committed(self, found: list[Any], refused: Callable[[Any], bool]) -> None:
        """Every row is found once; of those that the sink refuses there is a letter."""
        rows = self.all_rows("events")
        letters = [letter["value"] for letter in self.sinks.rows("dead_letters")]
        equal("letters", _named(letters), _named(row for row in rows if refused(row)))
        equal("records", _named([*found, *letters]), _named(rows))
        if self.productions is not Productions.WEAK:
            numbers = Counter((row["key"], row["number"]) for row in [*found, *letters])
            equal("numbers", numbers, self._numbers())


def _named(rows: Iterable[Any]) -> Counter[Any]:
    return Counter((row["p"], row["n"]) for row in rows)


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
