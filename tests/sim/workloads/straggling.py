"""Numbers while a machine takes four times as long as the others, twice, with too little time
between for anything to go back: its worker is relieved within seconds, and no shard goes to and
fro."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millwheel.core.model.names import NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import RangeTable
from tests.sim.kernel import Failure
from tests.sim.machines import Straggler
from tests.sim.workloads.base import SECOND, START_US
from tests.sim.workloads.numbers import Numbers

if TYPE_CHECKING:
    from tests.sim.world import Shape, World

_SPELLS = ((4 * SECOND, 9 * SECOND), (13 * SECOND, 17 * SECOND))
_RELIEF_US = 5 * SECOND
_SPAN_US = 18 * SECOND
_ROWS, _KEYS, _PARTITIONS = 150, 20, 2


class Straggling(Numbers):
    """See the module. What it promises beyond numbers holds where nothing else goes wrong."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.span_us = _SPAN_US
        self.keys = _KEYS
        self.rows = {"events": {f"p{n}": self._rows_of(n) for n in range(_PARTITIONS)}}
        self._homes: dict[ShardName, list[WorkerName]] = defaultdict(list)
        self._tables: dict[NodeName, RangeTable] = {}

    def _rows_of(self, number: int) -> list[Any]:
        apart_us = _SPAN_US // _ROWS
        return [
            {
                "key": f"k{self.rng.randrange(self.keys)}",
                "n": n * 97,  # none is poison
                "p": number,
                "id": f"{number}-{n}",
                "ts": START_US + n * apart_us,
            }
            for n in range(_ROWS)
        ]

    def shaped(self, shape: Shape) -> Shape:
        machines = Straggler(1, _SPELLS)
        return replace(shape, workers=2, shards=2, spares=0, standby=False, machines=machines)

    def attend(self, world: World) -> None:
        slow = next(name for name, worker in world.workers.items() if worker.slot == 0)
        at = START_US + _SPELLS[0][0]
        held: list[int] = []
        world.sim.at(at, lambda: held.append(self._held(slow)))
        world.sim.at(at + _RELIEF_US, lambda: self._relieved(world, slow, held[0]))

    def _held(self, worker: str) -> int:
        return sum(
            entry.owner == worker for table in self._tables.values() for entry in table.shards
        )

    def _relieved(self, world: World, slow: str, before: int) -> None:
        if world.calm and self._held(slow) >= before:
            raise Failure(
                f"a slow worker is relieved within {_RELIEF_US // SECOND} s: {slow} had"
                f" {before} shards and has {self._held(slow)}",
                (slow,),
            )

    def placed(self, world: World, table: RangeTable) -> None:
        self._tables[table.computation] = table
        settled = world.sim.now >= START_US + SECOND
        for entry in table.shards:
            homes = self._homes[entry.shard]
            if not entry.owner or homes[-1:] == [entry.owner]:
                continue
            if world.calm and settled and world.sim.now < START_US + _SPELLS[0][0] and homes:
                raise Failure(
                    f"nothing moves between equal workers: {entry.shard} of {homes[-1]} is given"
                    f" to {entry.owner}",
                    (entry.shard,),
                )
            homes.append(entry.owner)
            if world.calm and len(set(homes)) < len(homes):
                raise Failure(
                    f"no shard goes to and fro: the owners of {entry.shard} were {homes}",
                    (entry.shard,),
                )
