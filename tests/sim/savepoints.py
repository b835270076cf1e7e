"""Savepoints in simulated clusters: somebody takes them while things go wrong, and a second cluster
goes on from one.

What the second cluster starts with is nothing but the copies of the shards and the cuts of the
sinks that were committed by then. With the rest of the input, its results must be those of a run
that was never interrupted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from millwheel.control.savepoints.orders import Standing
from millwheel.control.savepoints.runtime import Taker
from millwheel.control.savepoints.state import SavepointRequest, Taking
from millwheel.core.formats.store_layout import COMMITTABLE, META, NEXT_BATCH, PENDING, decode_meta
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import CorruptionError, MillwheelError
from tests.sim.kernel import FOREVER, SECOND, Failure, Simulation
from tests.sim.model import ShardModel
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.workloads.base import Workload
    from tests.sim.world import World

_STEP_US = 5_000


@dataclass(slots=True)
class Savepoints:
    """What is taken in one run: a few savepoints, some of them interrupted. ``taken`` is the last
    whole one."""

    seed: int
    wanted: bool = True
    taken: Taken | None = None
    number: int = 0
    finishing: bool = False
    """Somebody has been told to tell the sources to end."""

    def schedule(self, world: World) -> None:
        """Let them happen, unless this cluster began with one."""
        if not self.wanted or self.taken is not None:
            return
        rng = random.Random(f"savepoints {self.seed}")
        for at in sorted(rng.randint(50_000, 4 * SECOND) for _ in range(rng.randint(1, 3))):
            world.sim.later(at, lambda: self._take(world, rng))

    def finish(self, world: World) -> None:
        """The sources are told to end where they are, by somebody who may die over it, and is
        followed by another."""
        self.finishing = True
        rng = random.Random(f"finish {self.seed}")
        at = rng.choice([rng.randint(10_000, 100_000), rng.randint(50_000, 3 * SECOND)])
        for _ in range(rng.randint(0, 2)):
            lives_us = rng.randint(1_000, SECOND)
            world.sim.later(at, lambda lives_us=lives_us: FinishProcess(world, lives_us))
            at += rng.randint(0, SECOND)
        world.sim.later(at, lambda: FinishProcess(world, FOREVER))

    def _take(self, world: World, rng: random.Random) -> None:
        if self.taken is not None and rng.random() < 0.5:
            return
        self.number += 1
        stay = rng.random() < 0.2
        wanted = SavepointRequest(
            f"s{self.number}", f"/saved-{self.number}", tuple(world.graph.nodes), stay, 3 * SECOND
        )
        taker = SavepointProcess(world, wanted)
        if rng.random() < 0.2:
            world.sim.later(rng.randint(1_000, SECOND), taker.end)


class SavepointProcess(Process):
    """The process of whoever takes a savepoint."""

    def __init__(self, world: World, wanted: SavepointRequest) -> None:
        super().__init__(world.sim, f"s0-{world.sim.number()}")
        self.world, self.wanted = world, wanted
        self.session = world.zookeeper.connect(self)
        self.sim.trace(f"{self.name} takes savepoint {wanted.savepoint}", self.name)
        self.spawn(self._main)

    def _main(self) -> None:
        taking = Taking(self.wanted)
        try:
            taker = Taker(taking, self.session)
            while not taker.step(self.clock.monotonic_us()):
                self.sleep(_STEP_US)
            self.world.savepoints.taken = Taken(
                self.wanted.folder, taking.tables, dict(taking.cut), self.world
            )
            self.sim.trace(f"savepoint {self.wanted.savepoint} is whole", self.name)
            if self.wanted.stay:
                self.sleep(SECOND // 2)
            taker.release()
        except MillwheelError as ex:
            self.sim.trace(f"savepoint {self.wanted.savepoint} is given up: {ex}", self.name)
        if not self.session.lost:
            self.session.close()
        self.end()


class FinishProcess(Process):
    """The process of whoever drains a pipeline. One that fails is followed by another."""

    def __init__(self, world: World, lives_us: int) -> None:
        super().__init__(world.sim, f"s0-{world.sim.number()}")
        self.world, self.lives_us = world, lives_us
        self.session = world.zookeeper.connect(self)
        self.session.on_lost(self._follow)
        self.sim.trace(f"{self.name} tells the sources to end", self.name)
        self.spawn(self._main)
        if lives_us < FOREVER:
            self.later(lives_us, self.end)

    def _main(self) -> None:
        wanted = SavepointRequest(
            self.name, "", tuple(self.world.graph.nodes), patience_us=3 * SECOND, finish=True
        )
        try:
            taker = Taker(Taking(wanted), self.session)
            while not taker.step(self.clock.monotonic_us()):
                self.sleep(_STEP_US)
        except MillwheelError:
            self._follow()

    def _follow(self) -> None:
        if self.alive:
            self.session.close()
            self.end()
            FinishProcess(self.world, self.lives_us)


def cut_to_the_end(world: World) -> None:
    """What the sources have read is all there was: the input becomes that, as the oracle sees
    it."""
    for stream, partitions in world.workload.rows.items():
        node = f"source.{stream}"
        shards = [entry.shard for entry in world.zookeeper.stored.tables[node].shards]
        for partition, rows in partitions.items():
            at = max(world.checkers.model.position(shard, partition).position for shard in shards)
            read = at // world.workload.stride
            world.sim.trace(f"{read} of {len(rows)} rows of {stream} {partition} were read")
            del rows[read:]


@dataclass(slots=True)
class Taken:
    """A whole savepoint."""

    folder: str
    tables: tuple[RangeTable, ...]
    cut: dict[str, Standing]
    world: World
    contents: dict[str, dict[bytes, bytes]] = field(default_factory=dict)

    def resumed(self, sim: Simulation, workload: Workload) -> World:
        """A new cluster that begins with it, on another number of workers."""
        from tests.sim.world import World

        for shard, standing in self.cut.items():
            self.contents[shard] = self._saved(shard, standing)
            self._check(shard, standing)
        self._forget_later_cuts(workload)
        shape = replace(self.world.shape, storage="model", workers=sim.rng.randint(1, 3))
        sim.trace("a second cluster goes on from the savepoint")
        later = Savepoints(0, wanted=workload.endless, taken=self)
        return World(sim, workload, shape, later)

    def _saved(self, shard: str, standing: Standing) -> dict[bytes, bytes]:
        try:
            return self.world.storage.saved(self.folder, shard, standing)
        except CorruptionError as ex:
            self.world.refused("whoever starts from the savepoint", ex)
            raise

    def _check(self, shard: str, standing: Standing) -> None:
        data = self.contents[shard].get(META)
        number = 0 if data is None else decode_meta(data).number
        if number != standing.commit:
            raise Failure(
                f"copies are as the cut says: {shard} has {number}, the cut {standing}", (shard,)
            )
        left = [
            store_key
            for store_key in self.contents[shard]
            if store_key[:1] in (PENDING, COMMITTABLE)
        ]
        if left:
            raise Failure(f"nothing is on its way in a savepoint: {shard} has {left[:3]}", (shard,))

    def _forget_later_cuts(self, workload: Workload) -> None:
        sinks = workload.sinks
        for visible in sinks.visible.values():
            for name in list(visible):
                shard, _, number = name.rpartition("/")
                if shard and int(number) >= int.from_bytes(
                    self.contents[shard].get(NEXT_BATCH, b""), "big"
                ):
                    del visible[name]

    def install(self, world: World) -> None:
        """Put snapshots and range tables where a new cluster finds them."""
        before = self.world.checkers.answers
        for table in self.tables:
            entries = tuple(
                replace(
                    each, owner="", next_owner="", lineage=(), split_at=0, merges_as="", parents=()
                )
                for each in table.shards
            )
            for entry in entries:
                standing, content = self.cut[entry.shard], self.contents[entry.shard]
                world.storage.install(entry.shard, standing, content)
                model = ShardModel(
                    standing.commit,
                    standing.token,
                    dict(content),
                    {standing.commit: standing.token},
                )
                model.meta = decode_meta(content[META]) if META in content else model.meta
                world.checkers.model.shards[entry.shard] = model
                applied = before.records(entry.shard, standing.token, standing.commit)
                world.checkers.answers.begins_with[entry.shard] = list(applied)
            world.zookeeper.write_table(RangeTable(table.computation, entries, named=table.named))
