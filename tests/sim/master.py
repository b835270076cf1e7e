"""One life of one master: election, the real runtime with its blocking effects, and its lines to
workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from millwheel.control.master import events as mev
from millwheel.control.master.runtime import MasterPace, MasterPorts, MasterRuntime
from millwheel.control.master.tables.resharding import Resharding
from millwheel.engine.workers import events as ev
from millwheel.errors import InvariantError, MillwheelError
from tests.sim.hosts import WatchedMaster
from tests.sim.kernel import Failure
from tests.sim.process import Mailbox, Process
from tests.sim.worker import SimWorker

if TYPE_CHECKING:
    from tests.sim.world import World

PACE = MasterPace(tick_us=50_000, scan_us=400_000)


class SimMaster(Process):
    """A master process: it stands by until it is elected, and ends with its session."""

    def __init__(self, world: World, slot: int) -> None:
        super().__init__(world.sim, f"m{slot}-{world.sim.number()}")
        self.world, self.slot = world, slot
        self.leading = False
        self.mailbox = Mailbox(self)
        self._background = Mailbox(self)
        self.session = world.zookeeper.connect(self)
        self.lines = Lines(self)
        self.runtime: MasterRuntime | None = None
        self.spawn(self._main)

    def _main(self) -> None:
        """As in :mod:`millwheel.control.master.server`."""
        try:
            self._run()
        except InvariantError as ex:
            raise Failure(f"{self.name}: {ex}", (self.name,)) from ex
        except MillwheelError as ex:
            self.sim.trace(f"{self.name} ends: {ex}", self.name)
            self.end()

    def _run(self) -> None:
        world, session = self.world, self.session
        won = Mailbox(self)
        session.on_lost(self._fenced)
        ports = MasterPorts(
            clock=self.clock,
            coordination=session,
            journals=_Journals(world, world.storage.journals(self)),
            snapshots=_Snapshots(world, world.storage.snapshots(self)),
            lines=self.lines,
            post=self.mailbox.put,
            background=self._background.put,
        )
        session.elect(
            "masters", self.name, msgspec.json.encode({"address": self.name}), lambda: won.put(1)
        )
        won.get()
        self.runtime = MasterRuntime(WatchedMaster(world.master_config()), ports, PACE)
        self.runtime.begin()
        self.leading = True
        self.spawn(self._work)
        while True:
            wake_us = self.runtime.step(self.mailbox.take(self.sim.delay(1, 20), 0))
            self.sleep(self.sim.delay(5, 100))
            if not len(self.mailbox):
                self.mailbox.take(0, max(1, wake_us - self.clock.monotonic_us()))

    def _fenced(self) -> None:
        self.sim.trace(f"{self.name} ends: its session is lost", self.name)
        self.end()

    def _work(self) -> None:
        while True:
            work = self._background.get()
            self.sleep(self.sim.delay(100, 3000))
            work()

    def ask_move(self, node: str, shard: str, worker: str) -> None:
        if self.runtime is not None and self.alive:
            self.runtime.ask_move(node, shard, worker, lambda refusal: None)

    def ask_reshard(self, requested: Resharding) -> None:
        if self.runtime is not None and self.alive:
            self.runtime.ask_reshard(requested, lambda refusal: None)


class _Journals:
    """The journals as the master sees them, observed."""

    def __init__(self, world: World, inner: Any) -> None:
        self._world, self._inner = world, inner

    def seal(self, incarnation: str) -> int:
        end = int(self._inner.seal(incarnation))
        known = self._world.checkers.ledger.sealed.setdefault(incarnation, end)
        self._world.checkers.answers.sealed_us.setdefault(incarnation, self._world.sim.now)
        self._world.same("every sealer gets the same end", known, end, incarnation)
        self._world.sim.trace(f"{incarnation} is sealed at {end}", incarnation)
        return end

    def collect(self, incarnation: str) -> None:
        tables = list(self._world.zookeeper.stored.tables.values())
        self._world.checkers.deletions.journal(incarnation, tables)
        self._world.sim.trace(f"the journal of {incarnation} is collected", incarnation)
        self._inner.collect(incarnation)

    def incarnations(self) -> Any:
        return self._inner.incarnations()


class _Snapshots:
    """The snapshots as the master sees them, observed."""

    def __init__(self, world: World, inner: Any) -> None:
        self._world, self._inner = world, inner

    def latest(self, shard: str) -> Any:
        return self._inner.latest(shard)

    def shards(self) -> Any:
        return self._inner.shards()

    def drop(self, shard: str) -> int:
        self._world.checkers.deletions.snapshots(
            shard, list(self._world.zookeeper.stored.tables.values())
        )
        self._world.sim.trace(f"the snapshots of {shard} are dropped", shard)
        return int(self._inner.drop(shard))


class Lines:
    """The master's lines to workers (see :mod:`millwheel.adapters.grpc.attach`): only a refused
    connection is a death."""

    def __init__(self, master: SimMaster) -> None:
        self._master = master
        self._lines: dict[str, _Line] = {}

    def attach(self, incarnation: str, address: str) -> None:
        self.detach(incarnation)
        self._lines[incarnation] = _Line(self._master, incarnation)

    def detach(self, incarnation: str) -> None:
        line = self._lines.pop(incarnation, None)
        if line is not None:
            line.close()

    def alarm(self, incarnation: str) -> None:
        """A worker that lives is taken for dead."""
        self._master.mailbox.put(mev.WorkerUnreachable(incarnation=incarnation, reason="a hiccup"))


class _Line:
    def __init__(self, master: SimMaster, incarnation: str) -> None:
        self._master, self._incarnation = master, incarnation
        self._closed = False
        self._hear: Callable[[mev.Event], None] = self._report
        master.later(master.world.network.delay(), self._connect)

    def close(self) -> None:
        self._closed = True
        worker = self._master.world.workers.get(self._incarnation)
        if worker is not None and self._hear in worker.masters:
            worker.masters.remove(self._hear)

    def _passes(self, worker: SimWorker) -> bool:
        passes = self._master.world.network.passes
        return passes(self._master.name, worker.name) and passes(worker.name, self._master.name)

    def _connect(self) -> None:
        master = self._master
        worker = master.world.workers[self._incarnation]
        if self._closed:
            return
        if not self._passes(worker):
            master.later(master.sim.delay(20_000, 200_000), self._connect)
            return
        if not worker.alive:
            master.mailbox.put(
                mev.WorkerUnreachable(incarnation=self._incarnation, reason="nobody listens")
            )
            return
        worker.masters.append(self._hear)
        worker.on_exit.append(lambda: master.later(master.sim.delay(1_000, 50_000), self._connect))
        worker.later(0, lambda: worker.post(ev.MasterAttached()))

    def _report(self, event: mev.Event) -> None:
        """A report of the worker; it arrives late, or never when the line is cut."""
        master = self._master
        worker = master.world.workers[self._incarnation]
        if self._passes(worker):
            master.later(
                master.world.network.delay(),
                lambda: None if self._closed else master.mailbox.put(event),
            )
        else:
            worker.masters.remove(self._hear)
            master.later(master.sim.delay(20_000, 200_000), self._connect)
