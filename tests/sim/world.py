"""A whole cluster in one thread: the real loops and machines of master, injector and workers, over
a simulated clock, network, store and coordinator. Everything that happens is drawn from one
seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from millwheel.control.master.config import MasterConfig
from millwheel.control.master.tables.planner import NodeDemand, why_fixed
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.graph import NodeKind
from millwheel.engine.workers.loop.commits import LONGEST_US
from millwheel.engine.workers.loop.pace import RuntimeLimits
from millwheel.engine.workers.loop.reporting import ReportPace
from millwheel.engine.workers.loop.snapshots import SnapshotPace
from millwheel.errors import CorruptionError
from tests.sim.checkers import Checkers
from tests.sim.coordinator import SimZooKeeper
from tests.sim.dying import SimDriver
from tests.sim.embedded import SimEmbedded
from tests.sim.injector import SimInjector
from tests.sim.kernel import SECOND, Failure, Simulation
from tests.sim.machines import EQUAL, Machines
from tests.sim.master import SimMaster
from tests.sim.model_storage import ModelStorage
from tests.sim.network import Network, place_of
from tests.sim.process import Process
from tests.sim.savepoints import Savepoints
from tests.sim.storage import FileStorage, Storage
from tests.sim.worker import SimWorker
from tests.sim.workloads.base import Workload


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a cluster is, and on what it runs; all of it drawn from the seed."""

    workers: int
    masters: int
    injectors: int
    storage: str
    segment_bytes: int
    snapshot_us: int
    shards: int
    spares: int = 0
    standby: bool = False
    divided: bool = False
    greedy: bool = False
    embedded: bool = False
    machines: Machines = EQUAL
    hosts: int = 0
    """How many hosts the workers share; 0: each has one of its own."""
    room: int = 0
    """Bytes of zeros over which groups of journals are written; 0: their files grow."""
    gently_us: int = 0
    """So far apart shards begin to move after a loss, and under a new master; 0: as ever."""

    @staticmethod
    def drawn(sim: Simulation, seed: int) -> Shape:
        rng = sim.rng
        drawn = random.Random(f"machines of {seed}").choice([EQUAL, EQUAL, EQUAL, Machines(seed)])
        machines = random.Random(f"kinds of machines of {seed}").choice([EQUAL, drawn])
        return Shape(
            workers=rng.randint(1, 3),
            masters=rng.choice([1, 1, 2]),
            injectors=rng.choice([1, 1, 2]),
            storage=rng.choice(["model", "append", "create"]),
            segment_bytes=rng.choice([500, 4_000, 60_000]),
            snapshot_us=rng.choice([100_000, SECOND, 10 * SECOND]),
            shards=max(rng.randint(1, 2), 2 if machines.seed else 1),
            spares=random.Random(f"spares of {seed}").choice([0, 0, 1, 2]),
            standby=random.Random(f"standbys of {seed}").choice([False, True]),
            divided=random.Random(f"long steps of {seed}").choice([False, False, True]),
            greedy=random.Random(f"early sends of {seed}").choice([False, True]),
            machines=machines,
        )


class Refused(BaseException):
    """A process found damage and says so: the right thing to do when bits were flipped, a failure
    otherwise."""


class World:
    """The cluster. What dies is started again, until :meth:`retire`."""

    def __init__(
        self,
        sim: Simulation,
        workload: Workload,
        shape: Shape,
        savepoints: Savepoints | None = None,
    ) -> None:
        self.sim, self.workload, self.shape = sim, workload, shape
        workload.now = lambda: sim.now
        self.limits = RuntimeLimits(
            few=0 if shape.greedy else 2,
            longest_work_us=0 if shape.divided else LONGEST_US,
            reports=ReportPace(load_us=shape.machines.load_us),
            snapshots=SnapshotPace(
                20_000, shape.snapshot_us, replayed_bytes=5_000, retry_us=SECOND // 2
            ),
        )
        self.graph = workload.assembly(Process(sim, "driver").clock).graph
        self.storage: Storage = (
            ModelStorage(sim)
            if shape.storage == "model"
            else FileStorage(sim, shape.storage, shape.segment_bytes, shape.room)
        )
        self.checkers = Checkers(self.graph, self.storage, workload.limits)
        self.savepoints = savepoints or Savepoints(0, wanted=False)
        self.network = Network(sim)
        coordinator = SimEmbedded if shape.embedded else SimZooKeeper
        self.zookeeper: Any = coordinator(sim, self.network, self._table_written)
        self.workers: dict[str, SimWorker] = {}
        self.masters: dict[str, SimMaster] = {}
        self.injectors: dict[str, SimInjector] = {}
        self.damaged = ""
        self.calm = True
        """Nothing goes wrong but what the machines are given."""
        self._driver = SimDriver(self)
        self._slots: dict[str, Process] = {}
        self._outsiders: list[Process] = []
        self._retired: set[str] = set()
        if self.savepoints.taken is not None:
            self.savepoints.taken.install(self)
        for slot in range(shape.masters):
            self._start(f"m{slot}")
        for slot in range(shape.injectors):
            self._start(f"i{slot}")
        for slot in range(shape.workers + shape.spares):
            self._start(f"w{slot}")
        workload.attend(self)

    # --- processes

    def _start(self, place: str) -> None:
        if place in self._retired:
            return
        slot = int(place[1:])
        process: Any
        if place[0] == "m":
            process = SimMaster(self, slot)
            self.masters[process.name] = process
        elif place[0] == "i":
            process = SimInjector(self, slot)
            self.injectors[process.name] = process
        else:
            process = SimWorker(self, slot)
            self.workers[process.name] = process
        self._slots[place] = process
        self.sim.trace(f"{process.name} starts", process.name)
        process.on_exit.append(lambda: self._exited(place, process))

    def admit(self, process: Process) -> None:
        """A process that is not part of the cluster, and has connections to it: partitions and the
        end of the simulation concern it as well."""
        self._outsiders.append(process)
        self.sim.trace(f"{process.name} starts", process.name)
        process.on_exit.append(lambda: self._cut_off(process))

    def _cut_off(self, process: Process) -> None:
        for connection in [c for c in self.network.connections if process in (c.client, c.server)]:
            connection.cut()

    def _exited(self, place: str, process: Process) -> None:
        self._cut_off(process)
        if isinstance(process, SimWorker) and process.doing is not None:
            self._driver.saw(process)
        if self._slots.get(place) is process:
            self.sim.later(self.sim.delay(10_000, 2 * SECOND), lambda: self._start(place))

    def kill(self, process: Process, why: str = "is killed") -> None:
        if process.alive:
            self.sim.trace(f"{process.name} {why}", process.name)
            process.end()

    def add_worker(self) -> None:
        """One more slot."""
        self._start(f"w{sum(1 for place in self._slots if place[0] == 'w')}")

    def retire(self, worker: SimWorker) -> bool:
        """The machine of a worker is gone for ever, unless it is the last one."""
        left = [p for p in self._slots if p[0] == "w" and p not in self._retired]
        if len(left) < 2:
            return False
        self._retired.add(f"w{worker.slot}")
        self.kill(worker, "is gone for ever")
        return True

    def alive(self, kind: str = "") -> list[Any]:
        """The processes that live, by the first letter of their name."""
        return [
            process
            for place, process in sorted(self._slots.items())
            if place.startswith(kind) and process.alive
        ]

    def host(self, slot: int) -> str:
        """The host of the worker of a slot."""
        return f"h{slot % self.shape.hosts if self.shape.hosts else slot}"

    def places(self) -> list[str]:
        """Where processes live, whether they do at the moment or not."""
        return sorted({*self._slots, *(place_of(each.name) for each in self._outsiders)})

    def master_config(self) -> MasterConfig:
        demands = tuple(
            NodeDemand(
                name,
                self.shape.shards * self.shape.workers,
                why_fixed(node.kind),
                self.shape.standby and node.kind is NodeKind.COMPUTATION,
                self.graph.grain(name),
            )
            for name, node in self.graph.nodes.items()
        )
        machines = self.shape.machines
        return MasterConfig(
            nodes=demands,
            expected_workers=self.shape.workers,
            spares=self.shape.spares,
            grace_us=SECOND // 2,
            settle_us=300_000,
            recover_us=300_000,
            standby_settle_us=300_000,
            gently_us=self.shape.gently_us,
            balance=machines.balance if self.shape.shards > 1 else None,
            speeds=machines.speeds,
        )

    # --- what the parts report

    def refused(self, name: str, error: CorruptionError) -> None:
        """A process stops because of damage."""
        self.sim.trace(f"{name} refuses: {error}", name)
        if not self.damaged:
            raise Failure(f"nothing is damaged, but {name} says: {error}", (name,)) from error
        raise Refused(f"{name}: {error}")

    def same(self, promise: str, known: int, found: int, *about: str) -> None:
        if known != found:
            raise Failure(f"{promise}: {known} and {found}", about)

    def _table_written(self, stored: RangeTable | None, table: RangeTable) -> None:
        self.checkers.tables.written(stored, table)
        self.checkers.answers.written(table)
        self.workload.placed(self, table)
        before = {entry.shard: entry for entry in (stored.shards if stored is not None else ())}
        for entry in table.shards:
            if before.get(entry.shard) != entry:
                moving = f", to be moved to {entry.next_owner}" if entry.next_owner else ""
                moving += f", to be split at {entry.split_at:016x}" if entry.split_at else ""
                moving += f", to be merged as {entry.merges_as}" if entry.merges_as else ""
                moving += (
                    f", from {' and '.join(parent.shard for parent in entry.parents)}"
                    if entry.parents
                    else ""
                )
                self.sim.trace(
                    f"the table gives {entry.shard} to {entry.owner or 'nobody'} under token"
                    f" {entry.token}{moving}",
                    *(entry.shard, entry.owner or "nobody"),
                )

    def close(self) -> None:
        """Unwind all processes."""
        for process in (
            *self.workers.values(),
            *self.masters.values(),
            *self.injectors.values(),
            *self._outsiders,
            self._driver,
        ):
            process.close()

    # --- the end of faults

    def heal(self) -> None:
        """All faults end; what is paused goes on by itself."""
        self.sim.trace("all faults end")
        self.network.heal_all()
        self.storage.trouble.clear()
        self.zookeeper.lose_answers = 0.0
        for process in self._slots.values():
            process.slow = 1

    def validate(self) -> None:
        """Raise InvariantError unless the state of every process that lives holds together."""
        for worker in self.alive("w"):
            if worker.quiet and worker.runtime is not None:
                worker.runtime.validate()
        for injector in self.alive("i"):
            injector.runtime.state.validate()

    def drained(self) -> bool:
        """True when every node's watermark says that nothing can come any more."""
        for injector in self.injectors.values():
            if injector.alive and injector.leading:
                views = {view.node: view for view in injector.runtime.state.view()}
                return all(
                    n in views and views[n].complete and views[n].watermark_us == MAX_TIME
                    for n in self.graph.nodes
                )
        return False

    def stuck(self) -> str:
        """Who holds which watermark."""
        lines = []
        for injector in self.injectors.values():
            if injector.alive and injector.leading:
                lines += [
                    f"{view.node} at {view.watermark_us} by {view.holder_shard} ({view.holder}),"
                    f" silent {view.silent_shards[:5]}"
                    for view in injector.runtime.state.view()
                    if view.watermark_us < MAX_TIME
                ]
        return "; ".join(lines) or "no injector leads"
