"""One life of one worker: the real loop and the real work of its threads, as tasks of a simulated
process."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from millwheel.adapters.clock import SteadyClock
from millwheel.adapters.grpc.watermark_client import ReportQueue, read_tallies
from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.adapters.processes.exits import Exit
from millwheel.control.master import events as mev
from millwheel.control.savepoints.orders import ORDERS, OrderAnswer, SavepointOrder, Standing
from millwheel.core.model.watermark import ShardReport, Watermarks
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.hangs import Hangs
from millwheel.engine.workers.dictionaries.store_form import NumbersRead
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.engine.workers.loop.runtime import WorkerRuntime
from millwheel.engine.workers.ports import ShardWork, WorkerPorts
from millwheel.engine.workers.queries.copies import FollowedCopies
from millwheel.engine.workers.queries.snapshots import SnapshotCopies, SnapshotFolder
from millwheel.engine.workers.queries.store_answers import StoreAnswers
from millwheel.engine.workers.recovery.following import Following
from millwheel.engine.workers.recovery.journal_reads import ReadOnce
from millwheel.engine.workers.threads.copies import Copying, OrderAnswers, Publishing
from millwheel.engine.workers.threads.journal import SEAL_CHECK_S, write_groups
from millwheel.engine.workers.threads.recovery import Recovering
from millwheel.errors import CorruptionError, InvariantError, MillwheelError
from tests.sim.dying import SimDoingNote
from tests.sim.hanging import WatchdogTask
from tests.sim.kernel import SECOND, Failure
from tests.sim.machines import Effort
from tests.sim.network import Connection
from tests.sim.process import Lock, Mailbox, Process, YieldingLock
from tests.sim.publishing import PublishTask
from tests.sim.standbys import StandbyTask, ToldStandbys
from tests.sim.transport import Transport

if TYPE_CHECKING:
    from tests.sim.injector import SimInjector
    from tests.sim.world import World

_FRAME_US = 2_000
_RECONNECT_US = (20_000, 300_000)


class SimWorker(Process):
    """A worker process. ``code`` is its exit code once it has ended, by default that of a kill from
    outside; ``doing`` is what it leaves behind about the bundle in progress, where somebody looks
    at it."""

    def __init__(self, world: World, slot: int) -> None:
        super().__init__(world.sim, f"w{slot}-{world.sim.number()}")
        self.world, self.slot = world, slot
        self.steady = SteadyClock(self.clock)
        self.mailbox = Mailbox(self)
        self.masters: list[Callable[[mev.Event], None]] = []
        self.transport = Transport(self)
        self.runtime: WorkerRuntime | None = None
        self.journal: JournalTask | None = None
        self.code: int = -signal.SIGKILL
        self.lacked_memory = False
        self.quiet = True
        """Between two steps of the loop, not in one that waits for the disk."""
        self.doing = SimDoingNote() if world.workload.dies else None
        self.session = world.zookeeper.connect(self)
        self.spawn(self._main)

    def post(self, event: ev.Event) -> None:
        self.mailbox.put(event)

    # --- the process

    def _main(self) -> None:
        try:
            self._run()
        except CorruptionError as ex:
            self.world.refused(self.name, ex)
        except InvariantError as ex:
            raise Failure(f"{self.name}: {ex}", (self.name,)) from ex
        except MillwheelError as ex:
            self.sim.trace(f"{self.name} ends: {ex}", self.name)
        if self.sim.chance(0.5) and not self.session.lost:
            self.session.close()
        self.code = Exit.FENCED
        self.end()

    def _run(self) -> None:
        world = self.world
        journals, snapshots = world.storage.journals(self), world.storage.snapshots(self)
        journal = self.journal = JournalTask(self, journals.create(self.name))
        scratch = world.storage.scratch(self)
        assembly = world.workload.assembly(self.clock)
        assembly.publish_aside(PublishTask(self).publish)
        hangs = self._watched(assembly)
        stores = world.storage.stores(self)
        now_us = self.clock.monotonic_us
        standbys = ToldStandbys(
            self, Following(stores, snapshots, journals, scratch, lambda: Lock(self), now_us)
        )
        reads = ReadOnce(journals, YieldingLock(self))
        numbers = NumbersRead(assembly.spec.computations)
        recovering = Recovering(
            stores, snapshots, journals, scratch, hangs, standbys, reads, numbers
        )
        opened = SnapshotCopies(
            SnapshotFolder(stores, snapshots, scratch, lambda: Lock(self), self.spawn, now_us)
        )
        ports = WorkerPorts(
            clock=self.steady,
            transport=self.transport,
            journal=journal,
            recoveries=RecoveryTask(self, recovering),
            snapshots=SnapshotTask(self, Publishing(snapshots, journal.check), scratch),
            reports=InjectorLine(self),
            master=MasterLine(self),
            savepoints=SavepointTask(self, journal.check, scratch),
            followers=StandbyTask(self, standbys),
            copies=FollowedCopies(standbys, StoreAnswers(assembly.spec).answer, now_us, opened),
        )

        def make_shard(*parts: Any) -> Any:
            return world.checkers.observe(assembly.make_shard(*parts))

        self.runtime = WorkerRuntime(self.name, assembly.graph, make_shard, ports, world.limits)
        for order in world.workload.replays:
            self.post(ev.ReplayOrdered(order, at_start=True))
        self.session.on_lost(lambda: self.post(ev.SessionLost()))
        self.session.watch_members("workers", self._workers_changed)
        self.session.watch_tables(lambda table: self.post(ev.TableChanged(table)))
        if world.savepoints.wanted:
            self.session.watch_members(ORDERS, lambda members: self.post(ev.OrdersChanged(members)))
        facts: dict[str, object] = {"address": self.name, "host": self.world.host(self.slot)}
        if world.shape.machines.seed:
            facts["weight"] = world.shape.machines.weight(self.slot)
        self.session.join("workers", self.name, _encode(facts))
        self._loop(self.runtime)

    def _watched(self, assembly: Assembly) -> Hangs | None:
        """Where callbacks may hang or end their worker, somebody watches."""
        workload = self.world.workload
        if not workload.hangs and self.doing is None:
            return None
        limits = assembly.spec.limits
        assert limits.callback_us is not None
        hangs = Hangs(self.world.storage.notes(self), limits.hangs, self.doing)
        assembly.watch(hangs)
        WatchdogTask(self, hangs, limits.callback_us)
        return hangs

    def _loop(self, runtime: WorkerRuntime) -> None:
        """As in :mod:`millwheel.engine.workers.process`: whatever came, then a step."""
        events: list[ev.Event] = []
        while not runtime.finished():
            self.quiet = False
            wake_at = runtime.step(events)
            self.quiet = True
            self.world.checkers.sound.look(runtime)
            self.sleep(self.sim.delay(5, 200))
            at_most = self.sim.delay(1, 60)
            events = self.mailbox.take(at_most, max(0, wake_at - self.steady.now_us()))

    def _workers_changed(self, members: Mapping[str, bytes]) -> None:
        self.post(
            ev.WorkersChanged({name: _decode(data)["address"] for name, data in members.items()})
        )


_encode = msgspec.json.encode
_decode = msgspec.json.decode


class JournalTask:
    """The journal behind a queue (see
    :class:`millwheel.engine.workers.threads.journal.JournalThread`)."""

    def __init__(self, worker: SimWorker, writer: Any) -> None:
        self._worker, self._writer = worker, writer
        self._lock = Lock(worker)
        self._queue = Mailbox(worker)
        self._submitted: deque[list[bytes]] = deque()
        worker.spawn(self._run)

    def submit(self, entries: Sequence[bytes]) -> None:
        self._told(entries)
        self._submitted.append(list(entries))
        self._queue.put(entries)

    def write_now(self, entries: Sequence[bytes]) -> int | None:
        """As often as not: what is quick, and for how long, is the disk's choice."""
        worker = self._worker
        if self._submitted or worker.sim.chance(0.5):
            return None
        self._told(entries)
        with self._lock:
            segment = self._writer.commit(entries)
        worker.world.checkers.durable(worker.name, segment, list(entries))
        return segment

    def _told(self, entries: Sequence[bytes]) -> None:
        self._worker.sim.written(entries)
        self._worker.world.checkers.model.submitted(list(entries))

    def segments(self) -> Sequence[int]:
        return list(self._writer.segments())

    def delete_segment(self, segment: int) -> None:
        self._worker.world.checkers.deletions.segment(self._worker.name, segment)
        self._writer.delete_segment(segment)

    def check(self) -> None:
        with self._lock:
            self._writer.commit([])

    def _run(self) -> None:
        going = True
        while going:
            groups = [*self._queue.take(1, int(SEAL_CHECK_S * SECOND)), *self._queue.drain()]
            with self._lock:
                going = write_groups(self._writer, groups, self._post)

    def _post(self, event: ev.Event) -> None:
        if isinstance(event, ev.GroupDurable):
            self._worker.world.checkers.durable(
                self._worker.name, event.segment, self._submitted.popleft()
            )
        self._worker.post(event)


class RecoveryTask:
    """Two tasks that open shards."""

    def __init__(self, worker: SimWorker, recovering: Recovering) -> None:
        self._worker, self._recovering = worker, recovering
        self._queue = Mailbox(worker)
        self._second = Mailbox(worker)
        self._turn = 0
        for queue in (self._queue, self._second):
            worker.spawn(lambda queue=queue: self._run(queue))

    def recover(self, node: str, entry: Any) -> None:
        self._turn += 1
        (self._queue if self._turn % 2 else self._second).put((node, entry))

    def _run(self, queue: Mailbox) -> None:
        while True:
            node, entry = queue.get()
            self._worker.sleep(self._worker.sim.delay(100, 5_000))
            self._recovering.open(node, entry, self._post)
            if not len(queue):
                self._recovering.rest()

    def _post(self, event: ev.Event) -> None:
        worker = self._worker
        if isinstance(event, ev.ShardRecovered):
            content = dict(event.store.scan(b""))
            worker.world.checkers.model.recovered(worker.name, event.entry, content)
            worker.sim.trace(
                f"{worker.name} opens {event.entry.shard} under token {event.entry.token} at commit"
                f" {worker.world.checkers.model.shard(event.entry.shard).number}",
                *(worker.name, event.entry.shard),
            )
        worker.post(event)


class SnapshotTask:
    """Publishes checkpoints one after the other."""

    def __init__(self, worker: SimWorker, publishing: Publishing, scratch: str) -> None:
        self._worker, self._publishing, self._scratch = worker, publishing, scratch
        self._queue = Mailbox(worker)
        worker.spawn(self._run)

    def checkpoint_path(self, shard: str, token: int, number: int) -> str:
        return f"{self._scratch}/checkpoint-{shard}-{token}-{number}-{self._worker.sim.number()}"

    def publish(self, shard: str, token: int, last_commit: int, path: str) -> None:
        self._queue.put((shard, token, last_commit, path))

    def _run(self) -> None:
        while True:
            shard, token, last_commit, path = self._queue.get()
            self._publishing.publish(shard, token, last_commit, path, self._post)
            self._worker.world.storage.drop_checkpoint(path)

    def _post(self, event: ev.Event) -> None:
        world = self._worker.world
        if isinstance(event, ev.SnapshotPublished):
            world.checkers.ledger.published(event.shard, event.last_commit)
            world.sim.trace(
                f"{self._worker.name} has a snapshot of {event.shard} up to commit"
                f" {event.last_commit}",
                *(self._worker.name, event.shard),
            )
            world.checkers.manifests.published(event.shard)
        self._worker.post(event)


class SavepointTask:
    """Answers to orders, and copies of shards (see
    :class:`millwheel.engine.workers.threads.copies.SavepointThread`)."""

    def __init__(self, worker: SimWorker, guard: Callable[[], None], scratch: str) -> None:
        self._worker, self._scratch = worker, scratch
        storage = worker.world.storage
        self._copying = Copying(lambda index: storage.snapshots(worker, index), guard)
        self._answers = OrderAnswers(worker.session, worker.name)
        self._queue = Mailbox(worker)
        if worker.world.savepoints.wanted:
            worker.spawn(self._run)

    def answer(self, answer: OrderAnswer) -> None:
        self._queue.put(lambda: self._answers.register(answer))

    def withdraw(self) -> None:
        self._queue.put(self._answers.withdraw)

    def checkpoint_path(self, order: SavepointOrder, shard: str) -> str:
        return f"{self._scratch}/savepoint-{order.name}-{shard}-{self._worker.sim.number()}"

    def save(self, order: SavepointOrder, shard: str, standing: Standing, path: str) -> None:
        def work() -> None:
            self._copying.save(order, shard, standing, path, self._worker.post)
            self._worker.world.storage.drop_checkpoint(path)

        self._queue.put(work)

    def _run(self) -> None:
        while True:
            self._queue.get()()


class InjectorLine:
    """The line to the leading injector (see
    :class:`millwheel.adapters.grpc.watermark_client.InjectorClient`)."""

    def __init__(self, worker: SimWorker) -> None:
        self._worker = worker
        self._answers = ReportQueue()
        self._watermarks = Watermarks()
        self._leader = ""
        self._connection: Connection | None = None
        self._flushing = False
        worker.session.watch_members("injector-leader", self._leader_changed)

    def report(self, by_node: Mapping[str, Sequence[ShardReport]]) -> None:
        for node, reports in by_node.items():
            self._answers.put(node, reports)
        self._flush_soon()

    def forget(self, shard: str) -> None:
        self._answers.forget(shard)

    def _flush_soon(self) -> None:
        if self._connection is not None and not self._flushing:
            self._flushing = True
            self._worker.later(_FRAME_US, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._connection is not None and self._answers.waiting():
            for frame in self._answers.take():
                self._connection.to_server(frame)

    def _leader_changed(self, members: Mapping[str, bytes]) -> None:
        self._leader = next(iter(members), "")
        if self._connection is None:
            self._connect()
        elif self._connection.server.name != self._leader:
            self._connection.cut()

    def _connect(self) -> None:
        world = self._worker.world
        server: SimInjector | None = world.injectors.get(self._leader)
        if self._connection is not None or server is None:
            return
        connection = server.accept(self._worker, self._hear)
        connection.on_broken = self._broken
        self._connection = connection
        self._answers.begin()
        self._flush_soon()

    def _broken(self) -> None:
        self._connection = None
        self._worker.later(self._worker.sim.delay(*_RECONNECT_US), self._connect)

    def _hear(self, message: pb.Broadcast) -> None:
        risen = self._watermarks.rise({mark.node: mark.watermark_us for mark in message.watermarks})
        if risen:
            self._worker.post(ev.WatermarksRose(risen))
        for known in message.known:
            self._worker.post(ev.TokenKnown(known.shard, known.token))
        if message.tallies:
            self._worker.post(ev.TalliesChanged(read_tallies(message)))


class MasterLine:
    """The lines of the masters that attached to this worker."""

    def __init__(self, worker: SimWorker) -> None:
        self._worker = worker
        self._effort = Effort(worker.world.shape.machines, worker.slot)

    def released(self, shard: str, token: int, last_commit: int) -> None:
        self._worker.world.checkers.ledger.released[shard, token] = last_commit
        name = self._worker.name
        self._tell(
            mev.ShardReleased(incarnation=name, shard=shard, token=token, last_commit=last_commit)
        )

    def load(self, loads: Sequence[ShardWork]) -> None:
        now_us = self._worker.sim.now
        rows = self._effort.reported(loads, now_us)
        if rows:
            memory = self._effort.memory(now_us)
            self._tell(mev.LoadReported(incarnation=self._worker.name, loads=rows, memory=memory))

    def _tell(self, event: mev.Event) -> None:
        for master in list(self._worker.masters):
            master(event)
