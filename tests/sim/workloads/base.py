"""What all workloads have in common: rows from a seed, a pipeline over them, and an oracle that
knows the results."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from millwheel.adapters.ports import Clock
from millwheel.connect.python_objects import load_object
from millwheel.core.model.failures import DEAD_LETTER, OnError
from millwheel.core.model.range_table import RangeTable
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.replays import ReplayOrder
from millwheel.core.pipeline.spec import Delivery, PipelineSpec, Productions, SinkSpec, StreamSpec
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.engine.workers.shard.admission import ShardLimits
from tests.sim.days import Days, FollowedSource
from tests.sim.kernel import SECOND, START_US, Failure
from tests.sim.outside import MemorySinks, MemorySource

if TYPE_CHECKING:
    from tests.sim.world import Shape, World

__all__ = ["SECOND", "START_US", "Workload", "by", "equal", "spread"]


def by(*fields: str) -> KeySpec:
    """The key taken from a field, or from several."""
    return KeySpec(KeyKind.FIELD if len(fields) == 1 else KeyKind.FIELDS, fields)


def spread(rng: random.Random, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows among up to four partitions."""
    names = [f"p{number}" for number in range(rng.randint(1, 4))]
    found: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        found[rng.choice(names)].append(row)
    return found


def equal(what: str, got: Counter[Any], want: Counter[Any]) -> None:
    """Raise Failure with what is missing and what is too much."""
    if got != want:
        missing, extra = want - got, got - want
        records = [
            str(part)
            for index in [*missing, *extra][:5]
            for part in (index if type(index) is tuple else [index])
        ]
        raise Failure(
            f"results are those of a run without faults: {what}: missing"
            f" {list(missing.items())[:5]}, too many {list(extra.items())[:5]}",
            (what, *records),
        )


class Workload:
    """``rows`` are what there is to read, by stream and partition; ``code`` the callbacks, by name.
    ``hangs``: some of them may not return, so workers are watched. ``dies``: some end their worker,
    so somebody notes how workers end. ``days``: the input grows from run to run. ``replays``: dead
    letters to be tried again. ``stride``: so far apart are the positions of rows. ``columns``: the
    fields, by type, of rows that are read in columns. ``endless``: its sources end only when they
    are told to; ``ends_early``: while there is input left."""

    hangs = False
    dies = False
    endless = False
    ends_early = False
    days: Days | None = None
    replays: Sequence[ReplayOrder] = ()
    stride = 1
    columns: Mapping[str, str] = MappingProxyType({})

    def __init__(self, seed: int, size: float) -> None:
        self.rng = random.Random(seed ^ 0x5EED)
        self.size = size
        self.seed = seed
        self.settle_us = SECOND // 5
        self.sinks = MemorySinks(self.look)
        self.sinks.aside = random.Random(seed ^ 0xA51DE).random() < 0.5
        self.rows: dict[str, dict[str, list[Any]]] = {}
        self.code: dict[str, Any] = {}
        rng = self.rng
        self.productions = rng.choice([Productions.STRONG, Productions.STRONG, Productions.WEAK])
        self.delivery = Delivery.EXACTLY_ONCE
        self.limits = ShardLimits(
            bundle=rng.choice([1, 7, 40]),
            timers=rng.choice([1, 10]),
            window=rng.choice([5, 50, 500]),
            pending=rng.choice([20, 500]),
            in_flight=rng.choice([1, 4]),
            weak_in_flight=rng.choice([4, 64]),
            straggler_us=rng.choice([20_000, 1_000_000]),
            settle_us=rng.choice([0, 20_000, 200_000]),
            gather_us=random.Random(seed ^ 0xC0).choice([0, 5_000, 100_000]),
            columns_from=random.Random(f"columns {seed}").choice([1, 1_000]),
            rows_below=random.Random(f"few {seed}").choice([0, 0, 4, 200]),
        )
        self.span_us = rng.choice([0, SECOND, 4 * SECOND])
        self.now: Callable[[], int] = lambda: START_US + self.span_us
        self._root = Path(tempfile.mkdtemp(prefix="sim-"))
        (self._root / "inputs").mkdir()

    def count(self, low: int, high: int) -> int:
        """How many of something, scaled by the size."""
        return self.rng.randint(low, max(low, int(high * self.size)))

    def all_rows(self, stream: str) -> list[Any]:
        """The rows of a stream, of partitions in the order of their names."""
        return [row for _, rows in sorted(self.rows[stream].items()) for row in rows]

    def spec(self) -> PipelineSpec:
        raise AssertionError("a workload has a pipeline")

    def shaped(self, shape: Shape) -> Shape:
        """The cluster that is to work on it, of the one that is drawn."""
        return shape

    def placed(self, world: World, table: RangeTable) -> None:
        """A range table has been stored; raise Failure when it never may be so."""

    def attend(self, world: World) -> None:
        """A cluster begins to work on it."""

    def ended(self, world: World) -> bool:
        """Whether there is nothing left to come."""
        return world.drained()

    def look(self, stream: str, row: Any) -> None:
        """A row becomes visible in a sink; raise Failure when it never may."""

    def check(self) -> None:
        """Raise Failure unless every sink holds exactly what it must."""

    def check_day(self, ends: Mapping[str, Mapping[str, int]]) -> None:
        """A run has caught up with so many rows of each partition; raise Failure unless all that
        follows from them is visible."""

    def tight(self) -> AbstractContextManager[object]:
        """While it lasts, limits of the code are as small as this workload."""
        return nullcontext()

    def close(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)

    def _released(self, rows: int) -> int:
        """The rows are written evenly over ``span_us``."""
        passed = self.now() - START_US
        return rows if passed >= self.span_us else rows * passed // self.span_us

    def assembly(self, clock: Clock) -> Assembly:
        """What builds the shards of one worker."""
        sources = {stream: self._source(rows) for stream, rows in self.rows.items()}
        for stream, source in sources.items():
            path = self._root / "inputs" / f"{stream}.json"
            if not path.exists():
                path.write_bytes(msgspec.json.encode(source.partitions()))
        outside = Factories(
            lambda spec, *_: sources[spec.options["stream"]],
            self._sinks(),
            lambda name, folder: (
                self.code[name] if name in self.code else load_object(name, folder)
            ),
            ends=(
                None
                if self.days is None or self.days.last
                else {s: source.ends() for s, source in sources.items()}
            ),
        )
        assembly = Assembly(self._judged(self.spec()), str(self._root), clock, outside, self.limits)
        assembly.stop_broken()
        return assembly

    def _sinks(self) -> Callable[[SinkSpec, str], Any]:
        """What builds the sinks of one worker."""
        return self.sinks.build

    def _source(self, rows: dict[str, list[Any]]) -> MemorySource:
        if self.days is None:
            return MemorySource(rows, self._released, self.stride, self.columns)
        return FollowedSource(rows, self.days, self.stride)

    def _followed(self, stream: StreamSpec) -> StreamSpec:
        """A partition that has ended for today holds the watermark: what comes tomorrow is not
        late."""
        return stream if self.days is None else replace(stream, idle_after_us=None)

    def _judged(self, spec: PipelineSpec) -> PipelineSpec:
        """With policies under which no run stops, but in some seeds each step with failures waits
        for others first."""
        policy = random.Random(self.seed ^ 0xBAD).choice([DEAD_LETTER, OnError(0.5, 1_000_000)])
        return replace(
            spec,
            streams=tuple(
                self._followed(replace(stream, on_error=policy)) for stream in spec.streams
            ),
            computations=tuple(replace(each, on_error=policy) for each in spec.computations),
        )
