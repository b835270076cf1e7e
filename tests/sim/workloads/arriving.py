"""Records whose timestamps are the times at which they arrive, in two computations with the same
windows: each record counts once in both, and in the same window, whoever reads it again later."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from millwheel.api import Computation
from millwheel.connect.sources.base import Chunk, Partition
from millwheel.core.pipeline.spec import (
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from tests.computations import computation_spec
from tests.sim.kernel import Failure
from tests.sim.outside import MemoryReader, MemorySource
from tests.sim.workloads.base import SECOND, Workload, by, equal

if TYPE_CHECKING:
    from tests.sim.world import World

_SINKS = ("by_key", "by_partition")


class EndlessSource(MemorySource):
    """Partitions to which something may always be added."""

    bounded = False
    list_us = 100_000

    def open(self, partition: Partition) -> MemoryReader:
        return EndlessReader(self.rows[partition.name], self._released, self._stride, self._fields)


class EndlessReader(MemoryReader):
    """Reads one of them."""

    def read(self, position: int, max_records: int) -> Chunk:
        chunk = super().read(position, max_records)
        chunk.finished, chunk.caught_up = False, chunk.next_position == position
        return chunk


class Passing(Computation):
    """Passes records on at once."""

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.produce("read", record.value)


class Arriving(Workload):
    """A source, with an end or without → windows by key, windows by partition → sinks."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.code = {"sim:Passing": Passing}
        own = Random(f"arriving {seed}")
        self.endless = own.random() < 0.7
        self.span_us = own.choice([0, SECOND, 4 * SECOND])
        self.size_us = own.choice([SECOND // 10, SECOND, 10 * SECOND])
        keys = own.choice([1, 3, 20])
        if own.random() < 0.5:
            self.columns = {"key": "str", "p": "int", "n": "int"}
        self.rows = {
            "events": {
                f"p{number}": [
                    {"key": f"k{own.randrange(keys)}", "p": number, "n": n}
                    for n in range(own.randint(1, max(1, int(120 * size))))
                ]
                for number in range(own.randint(1, 4))
            }
        }

    def _source(self, rows: dict[str, list[Any]]) -> MemorySource:
        if not self.endless or self.days is not None:
            return super()._source(rows)
        return EndlessSource(rows, self._released, self.stride, self.columns)

    def spec(self) -> PipelineSpec:
        stream = StreamSpec(
            "events",
            SourceSpec("memory", {"stream": "events"}),
            arrival=True,
            fields=self.columns,
            idle_after_us=None,
            max_future_us=None,
        )
        windows = tuple(
            computation_spec(
                name,
                (InputSpec("events", by(field)),),
                (name,),
                window=WindowSpec("tumbling", {"size_us": self.size_us}),
                aggregates=(AggregateSpec("count", "count"), AggregateSpec("sum", "sum", "n")),
            )
            for name, field in zip(_SINKS, ("key", "p"), strict=True)
        )
        passed = computation_spec(
            "passed",
            (InputSpec("events", by("p")),),
            ("read",),
            callback="sim:Passing",
            productions=self.productions,
        )
        sinks = tuple(SinkSpec(name, "memory") for name in (*_SINKS, "read", "dead_letters"))
        return PipelineSpec("sim", (stream,), (*windows, passed), sinks, "/nowhere")

    def ended(self, world: World) -> bool:
        """An endless source is told to end once all was read."""
        if not self.endless:
            return super().ended(world)
        if not world.savepoints.finishing and len(self.sinks.rows("read")) >= len(
            self.all_rows("events")
        ):
            world.savepoints.finish(world)
        return world.savepoints.finishing and world.drained()

    def check(self) -> None:
        for name, field in zip(_SINKS, ("key", "p"), strict=True):
            rows = self.sinks.rows(name)
            counts: Counter[Any] = Counter()
            for row in rows:
                counts[row[field]] += row["count"]
            equal(f"records {name}", counts, Counter(row[field] for row in self.all_rows("events")))
            panes = Counter((row[field], row["window_start"]) for row in rows)
            if twice := [pane for pane, times in panes.items() if times > 1]:
                raise Failure(f"no record is late: {name} closed {twice[0]} twice", (name,))
        first, second = (self._by_window(name) for name in _SINKS)
        equal("records by window", first, second)

    def _by_window(self, name: str) -> Counter[Any]:
        sums: Counter[Any] = Counter()
        for row in self.sinks.rows(name):
            sums[row["window_start"], "count"] += row["count"]
            sums[row["window_start"], "sum"] += row["sum"]
        return +sums
