"""Runs that end once they have caught up, one after the other on one root, while the input grows
and things go wrong.

Each run reads up to where the input ended when it began, although more is written meanwhile. When
it says that it has caught up, everything up to there must be committed and shown. Then all its
processes end at once, and the next run goes on. The last one is an ordinary run, whose sources are
told to end. Together they must give the results of one run.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from millwheel.connect.sources.base import Chunk, Partition
from millwheel.control.savepoints.orders import Standing
from millwheel.control.savepoints.runtime import Taker
from millwheel.control.savepoints.state import SavepointRequest, Taking
from millwheel.core.formats.store_layout import COMMITTABLE, PENDING
from millwheel.errors import MillwheelError
from millwheel.launch.progress.catching_up import has_caught_up
from tests.sim.kernel import FOREVER, SECOND, Failure
from tests.sim.outside import MemoryReader, MemorySource
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.faults import Fault
    from tests.sim.world import World

_STEP_US = 5_000
_PATIENCE_US = 2**62


class Days:
    """How the input of a run grows. ``number`` is the run that works now; after the last day none
    ends by itself."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"days {seed}")
        self.shares = sorted(
            rng.choice([0.0, 0.2, 0.5, 0.8, 1.0]) for _ in range(rng.randint(1, 3))
        )
        self.ahead = rng.choice([0, 3, 50])
        self.slow = random.Random(f"slow answers {seed}")
        self.slowness = rng.choice([0.0, 0.0, 0.3])
        self.number = 0
        self.caught_up = False

    @property
    def last(self) -> bool:
        """Whether the run of now goes on beyond what there was when it began."""
        return self.number >= len(self.shares)

    def end(self, rows: int) -> int:
        """How many of so many rows there were when the run of now began."""
        return rows if self.last else int(rows * self.shares[self.number])

    def written(self, rows: int) -> int:
        """How many there are by now: more than the run is to read."""
        return min(rows, self.end(rows) + self.ahead)

    def faults_of_now(self, faults: Sequence[Fault]) -> list[Fault]:
        """Those of a plan that belong to the run of now, squeezed into its time."""
        runs = len(self.shares) + 1
        mine = [fault for fault in faults if fault.number % runs == self.number]
        return [replace(fault, at_us=fault.at_us // runs) for fault in mine]

    def watch(self, world: World) -> None:
        """Somebody waits for the run to catch up. Who dies over it is followed by another."""
        rng = random.Random(f"watch {world.workload.seed} {self.number}")
        self.caught_up = False
        lives_us = rng.choice([FOREVER, FOREVER, rng.randint(10_000, SECOND)])
        WatchProcess(world, self, lives_us)

    def next_run(self, world: World) -> None:
        """All processes of a run end, and those of the next one begin."""
        world.sim.trace(f"run {self.number} has caught up and ends")
        self.number += 1
        for process in world.alive():
            world.kill(process, "ends with its run")

    def check(self, world: World, tables: Sequence[Any], stands: Mapping[str, Standing]) -> None:
        """What a run leaves behind that says it has caught up."""
        model = world.checkers.model
        for shard, standing in stands.items():
            at = model.shard(shard)
            if at.number < standing.commit:
                raise Failure(
                    f"a run that has caught up is durable: {shard} stands at {standing}", (shard,)
                )
            left = [store_key for store_key in at.state if store_key[:1] in (PENDING, COMMITTABLE)]
            if left:
                raise Failure(
                    f"a run that has caught up leaves nothing on its way: {shard} has {left[:3]}",
                    (shard,),
                )
        for table in tables:
            for stream, partitions in world.workload.rows.items():
                if table.computation == f"source.{stream}":
                    self._check_positions(
                        world, [entry.shard for entry in table.shards], partitions
                    )
        read = {
            s: {p: self.end(len(rows)) for p, rows in ps.items()}
            for s, ps in world.workload.rows.items()
        }
        world.workload.check_day(read)

    def _check_positions(
        self, world: World, shards: Sequence[str], partitions: Mapping[str, Sequence[Any]]
    ) -> None:
        for partition, rows in partitions.items():
            at = max(world.checkers.model.position(shard, partition).position for shard in shards)
            read, end = at // world.workload.stride, self.end(len(rows))
            if read != end:
                raise Failure(
                    f"a run catches up with what there was when it began: {partition} is committed"
                    f" up to {read}, there were {end} rows",
                    tuple(shards),
                )


class FollowedSource(MemorySource):
    """The same rows in a source without an end of its own."""

    bounded = False
    list_us = 100_000

    def __init__(self, rows: dict[str, list[Any]], days: Days, stride: int) -> None:
        super().__init__(rows, days.written, stride)
        self.days = days

    def ends(self) -> Sequence[Partition]:
        return [
            Partition(name, (self.days.end(len(rows)),)) for name, rows in sorted(self.rows.items())
        ]

    def open(self, partition: Partition) -> FollowedReader:
        return FollowedReader(self.rows[partition.name], self.days, self._stride)


class FollowedReader(MemoryReader):
    """As a consumer of a topic: it may have nothing for the moment, although there is more."""

    def __init__(self, rows: list[Any], days: Days, stride: int) -> None:
        super().__init__(rows, days.written, stride)
        self._days = days
        self._end: int | None = None

    def stop_at(self, end: tuple[int, ...]) -> None:
        self._end = end[0]

    def reached(self, position: int) -> bool:
        return self._end is None or position // self._stride >= self._end

    def read(self, position: int, max_records: int) -> Chunk:
        if self._days.slow.random() < self._days.slowness:
            return Chunk([], [], position)
        if self._end is not None:
            max_records = min(max_records, max(self._end - position // self._stride, 0))
        chunk = super().read(position, max_records)
        chunk.finished, chunk.caught_up = False, chunk.next_position == position
        return chunk


class WatchProcess(Process):
    """As :class:`millwheel.launch.progress.catching_up.CatchingUp`."""

    def __init__(self, world: World, days: Days, lives_us: int) -> None:
        super().__init__(world.sim, f"s0-{world.sim.number()}")
        self.world, self.days, self.lives_us = world, days, lives_us
        self.session = world.zookeeper.connect(self)
        self.session.on_lost(self._follow)
        self.sim.trace(f"{self.name} waits for the run to catch up", self.name)
        self.spawn(self._main)
        if lives_us < FOREVER:
            self.later(lives_us, self._follow)

    def _main(self) -> None:
        wanted = SavepointRequest(
            f"c{self.name}",
            "",
            tuple(self.world.graph.nodes),
            patience_us=_PATIENCE_US,
            caught_up=partial(has_caught_up, self.world.graph),
        )
        try:
            taker = Taker(Taking(wanted), self.session)
            while not taker.step(self.clock.monotonic_us()):
                self.sleep(_STEP_US)
        except MillwheelError:
            self._follow()
            return
        self.sim.trace(f"{self.name} says that the run has caught up", self.name)
        self.days.check(self.world, taker.taking.tables, taker.taking.stands)
        self.days.caught_up = True
        self.end()

    def _follow(self) -> None:
        """By one that lives longer: else none might live long enough."""
        if self.alive:
            self.session.close()
            self.end()
            WatchProcess(
                self.world, self.days, FOREVER if self.lives_us == FOREVER else 4 * self.lives_us
            )
