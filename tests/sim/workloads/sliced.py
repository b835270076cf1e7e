"""Slices that are asked while they grow: late records, records of expired slices, and questions all
the time."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from millwheel.core.pipeline.spec import (
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import AggregateSpec, SlicesSpec
from tests.computations import computation_spec
from tests.sim.asking import Asking
from tests.sim.kernel import Failure
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal

if TYPE_CHECKING:
    from tests.sim.world import World

DELAY_US = 3 * SECOND
SLICES = "clicks_of"
FIELDS = {"key": "str", "n": "int", "p": "int", "ts": "int"}
"""Declared fields: slices of what is read in columns change in columns."""


class Sliced(Workload):
    """A source with late records → slices in two levels; what is later than they are kept goes to a
    sink."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.keys = self.rng.choice([1, 4, 15])
        every_us = self.rng.choice([1, 2]) * SECOND
        self.slices = SlicesSpec((every_us, 5 * every_us), self.rng.choice([12, 40, 200]) * SECOND)
        self.rows = {"clicks": {f"p{i}": self._partition(i) for i in range(self.rng.randint(1, 3))}}
        self.span_us = self.rng.choice([SECOND, 4 * SECOND])
        self.fields = Random(seed ^ 0xC01).choice([{}, FIELDS, FIELDS])
        self.columns = Random(seed ^ 0xC02).choice([{}, self.fields])

    def _partition(self, number: int) -> list[Any]:
        rng, rows, time_us = self.rng, [], START_US
        for n in range(self.count(1, 120)):
            time_us += rng.randint(0, SECOND)
            late = rng.random() < 0.1
            stamp = time_us - (
                rng.choice([15, 60]) * SECOND if late else rng.randint(0, DELAY_US - 1)
            )
            rows.append({"key": f"k{rng.randrange(self.keys)}", "n": n, "p": number, "ts": stamp})
        return rows

    def spec(self) -> PipelineSpec:
        source = SourceSpec("memory", {"stream": "clicks"})
        stream = StreamSpec(
            "clicks", source, timestamp="ts", max_delay_us=DELAY_US, fields=self.fields
        )
        slices = computation_spec(
            SLICES,
            (InputSpec("clicks", by("key")),),
            (),
            slices=self.slices,
            late="side:too_late",
            aggregates=(AggregateSpec("count", "count"), AggregateSpec("sum", "sum", "n")),
        )
        return PipelineSpec(
            "sim", (stream,), (slices,), (SinkSpec("too_late", "memory"),), "/nowhere"
        )

    def attend(self, world: World) -> None:
        self._world = world
        Asking(world, self.slices, SLICES, [f"k{number}" for number in range(self.keys)])

    def check(self) -> None:
        """Every record was applied once, by a commit that counts, and those of expired slices were
        set aside."""
        world = self._world
        answers, hashed = world.checkers.answers, world.graph.hash_of(SLICES)
        found = [
            record
            for entry in world.zookeeper.stored.tables[SLICES].shards
            for record in answers.records(
                entry.shard, entry.token, answers.model.shard(entry.shard).number
            )
            if hashed(record.key) in entry.range
        ]
        rows = [row for rows in self.rows["clicks"].values() for row in rows]
        equal(
            "applied",
            Counter(record.id for record in found),
            Counter((row["p"], row["n"]) for row in rows),
        )
        aside = Counter((row["p"], row["n"]) for row in self.sinks.rows("too_late"))
        equal("too late", aside, Counter(record.id for record in found if record.late))
        if not answers.answered:
            raise Failure("questions are answered: not one was")
