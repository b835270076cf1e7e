"""A whole cluster in one thread: the real worker loops, master and injector machines, over a simulated clock, network,
store and coordinator. Everything that happens is drawn from one seed."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import xxhash

from millwheel.core.codec import decode_batch, encode_batch
from millwheel.core.table import RangeTable
from millwheel.core.times import MAX_TIME
from millwheel.core.watermark import ShardReport
from millwheel.errors import CorruptionError, FencedError, InvariantError, MillwheelError
from millwheel.injector import effects as ief
from millwheel.injector import events as iev
from millwheel.injector.state import InjectorState
from millwheel.master import effects as mef
from millwheel.master import events as mev
from millwheel.master.planner import NodeDemand
from millwheel.master.state import MasterConfig, MasterState
from millwheel.workers import events as ev
from millwheel.workers.assembly import Assembly
from millwheel.workers.outbox import Send
from millwheel.workers.ports import WorkerPorts
from millwheel.workers.recovery import recover
from millwheel.workers.runtime import RuntimeLimits, WorkerRuntime
from tests.sim.storage import SimJournals, SimSnapshots, SimStores

START_US = 1_700_000_000_000_000


class Failure(AssertionError):
    """An invariant does not hold; the text says which."""


class SimClock:
    def __init__(self, world: World) -> None:
        self._world = world

    def now_us(self) -> int:
        return self._world.now

    def monotonic_us(self) -> int:
        return self._world.now


class SimWorker:
    """One life of one worker: its loop, and the ports it sees."""

    def __init__(self, world: World, slot: int) -> None:
        self.world = world
        self.slot = slot
        self.name = f"w{slot}-{world.next_number()}"
        self.alive = True
        self.paused_until = 0
        self.joined = True
        self.events: deque[ev.Event] = deque()
        self.pending_groups: deque[list[bytes]] = deque()
        self.writing = False
        self.fenced = False
        self.scheduled = MAX_TIME
        self.known: dict[str, ShardReport] = {}
        self.connection = world.next_number()
        self.outbound: dict[str, list[tuple[Send, int]]] = {}
        self.answers: list[tuple[str, Any]] = []
        world.journals.create(self.name)
        ports = WorkerPorts(SimClock(world), self, self, self, self, self, self)
        self.runtime = WorkerRuntime(self.name, world.graph, world.make_shard, ports, RuntimeLimits())

    # --- events ------------------------------------------------------------------------------------------

    def post(self, event: ev.Event) -> None:
        if self.alive:
            self.events.append(event)
            self.wake(self.world.now)

    def wake(self, at: int) -> None:
        at = max(at, self.paused_until, self.world.now)
        if self.alive and at < self.scheduled:
            self.scheduled = at
            self.world.at(at, lambda: self._step(at))

    def _step(self, at: int) -> None:
        if not self.alive or self.scheduled != at:
            return
        self.scheduled = MAX_TIME
        if self.world.now < self.paused_until:
            self.wake(self.paused_until)
            return
        taken = [self.events.popleft() for _ in range(min(len(self.events), self.world.rng.randint(1, 20)))]
        try:
            wake = self.runtime.step(taken)
        except FencedError:
            self.world.trace("exit", self.name, "fenced")
            self.world.exit(self)
            return
        except (CorruptionError, InvariantError) as ex:
            raise Failure(f"{self.name}: {ex}") from ex
        self.wake(self.world.now if self.events else max(wake, self.world.now + 100))

    # --- the journal -------------------------------------------------------------------------------------

    def submit(self, entries: Sequence[bytes]) -> None:
        self.pending_groups.append(list(entries))
        self._write_next()

    def _write_next(self) -> None:
        if self.writing or not self.pending_groups:
            return
        self.writing = True
        self.world.later(self.world.delay(50, 1500), self._write)

    def _write(self) -> None:
        if not self.alive:
            return
        if self.world.now < self.paused_until:
            self.world.at(self.paused_until + self.world.delay(0, 100), self._write)
            return
        segment = self.world.journals.write(self.name, self.pending_groups.popleft())
        self.world.later(self.world.delay(10, 300), lambda: self._check_seal(segment))

    def _check_seal(self, segment: int) -> None:
        if not self.alive:
            return
        if self.world.now < self.paused_until:
            self.world.at(self.paused_until + self.world.delay(0, 100), lambda: self._check_seal(segment))
            return
        if self.world.journals.sealed(self.name):
            self.fenced = True
            self.post(ev.JournalFailed(FencedError(f"{self.name} is sealed")))
            return
        self.writing = False
        self.post(ev.GroupDurable(segment))
        self._write_next()

    def segments(self) -> Sequence[int]:
        return self.world.journals.segments(self.name)

    def delete_segment(self, segment: int) -> None:
        self.world.journals.delete_segment(self.name, segment)

    # --- recoveries and snapshots ------------------------------------------------------------------------

    def recover(self, node: str, entry: Any) -> None:
        def work() -> None:
            if not self.alive:
                return
            try:
                store = recover(entry, SimStores(), self.world.snapshots, self.world.journals, self.name)
            except MillwheelError as ex:
                raise Failure(f"recovery of {entry}: {ex}") from ex
            self.post(ev.ShardRecovered(entry, node, store))

        self.world.later(self.world.delay(500, 20_000), work)

    def checkpoint_path(self, shard: str, token: int, number: int) -> str:
        return f"{self.name}/{shard}-{token}-{number}"

    def publish(self, shard: str, token: int, last_commit: int, path: str) -> None:
        def guard() -> None:
            if self.world.journals.sealed(self.name):
                raise FencedError(self.name)

        def work() -> None:
            if not self.alive:
                return
            try:
                self.world.snapshots.publish(shard, token, last_commit, path, guard)
            except MillwheelError as ex:
                self.post(ev.SnapshotFailed(shard, token, ex))
                return
            self.post(ev.SnapshotPublished(shard, token, last_commit))

        self.world.later(self.world.delay(500, 30_000), work)

    # --- the network -------------------------------------------------------------------------------------

    def send(self, address: str, token: int, send: Send) -> None:
        self.outbound.setdefault(address, []).append((send, token))

    def ack(self, route: Any, channel: str, target: str, epoch: int, index: int) -> None:
        self.answers.append((route, ev.AckCame(channel, target, epoch, index)))

    def refuse(self, route: Any, channel: str, target: str, epoch: int, moved: bool) -> None:
        self.answers.append((route, ev.RefusalCame(channel, target, epoch, moved)))

    def flush(self) -> None:
        for address, sends in self.outbound.items():
            line = self.world.line(self.name, address)
            for send, token in sends:
                data = encode_batch(send.batch)
                line.put(self._delivery(send, token, data, line))
        self.outbound.clear()
        for line, event in self.answers:
            line.answer(event)
        self.answers.clear()

    @staticmethod
    def _delivery(send: Send, token: int, data: bytes, line: Line) -> ev.DeliveryCame:
        batch = decode_batch(data)
        return ev.DeliveryCame(send.channel, send.node, send.target, token, send.epoch, send.index, batch, line)

    # --- injector and master -----------------------------------------------------------------------------

    def report(self, node: str, reports: Sequence[ShardReport]) -> None:
        for report in reports:
            self.known[report.shard] = report
        self.world.to_injector(self, node, list(reports))

    def forget(self, shard: str) -> None:
        self.known.pop(shard, None)

    def released(self, shard: str, token: int, last_commit: int) -> None:
        event = mev.ShardReleased(incarnation=self.name, shard=shard, token=token, last_commit=last_commit)
        self.world.later(self.world.delay(100, 3000), lambda: self.world.to_master(event))

    def load(self, loads: Sequence[tuple[str, int, int, int]]) -> None:
        pass


class Line:
    """A connection between two workers: in order while it lives; a broken one loses what is on its way."""

    def __init__(self, world: World, source: str, target: str) -> None:
        self.world = world
        self.source = source
        self.target = target
        self.broken = False
        self._out = world.now
        self._back = world.now

    def put(self, event: ev.DeliveryCame) -> None:
        self._out = max(self._out, self.world.now + self.world.delay(50, 2000))
        self.world.at(self._out, lambda: self._arrive(self.target, event))

    def answer(self, event: ev.Event) -> None:
        self._back = max(self._back, self.world.now + self.world.delay(50, 2000))
        self.world.at(self._back, lambda: self._arrive(self.source, event))

    def _arrive(self, name: str, event: ev.Event) -> None:
        if self.broken:
            return
        worker = self.world.workers.get(name)
        if worker is None or not worker.alive:
            self.cut()
            return
        worker.post(event)

    def cut(self) -> None:
        if self.broken:
            return
        self.broken = True
        self.world.lines.pop((self.source, self.target), None)
        source, target = self.world.workers.get(self.source), self.target
        if source is not None:
            self.world.later(self.world.delay(100, 5000), lambda: source.post(ev.PeerLost(target)))


class World:
    """The cluster and its faults. ``faults`` names which kinds happen."""

    def __init__(
        self, seed: int, make_assembly: Callable[[SimClock], Assembly], workers: int, faults: frozenset[str]
    ) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.now = START_US
        self.faults = faults
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._number = 0
        self._digest = xxhash.xxh3_64()
        self.story: deque[str] = deque(maxlen=4000)
        self.journals = SimJournals()
        self.snapshots = SimSnapshots()
        self.workers: dict[str, SimWorker] = {}
        self.lines: dict[tuple[str, str], Line] = {}
        self.tables: dict[str, RangeTable] = {}
        self.members: dict[str, str] = {}
        self.expected = workers
        assembly = make_assembly(SimClock(self))
        self.assembly = assembly
        self.graph = assembly.graph
        self.injector: InjectorState | None = None
        self.injector_life = 0
        self.master: MasterState | None = None
        self.master_life = 0
        self.restarts = True
        self.start_injector()
        self.start_master()
        for slot in range(workers):
            self.start_worker(slot)

    # --- scheduling --------------------------------------------------------------------------------------

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def delay(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def at(self, when: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, action))

    def later(self, after: int, action: Callable[[], None]) -> None:
        self.at(self.now + after, action)

    def trace(self, *words: object) -> None:
        line = f"{self.now - START_US:>10} {' '.join(map(str, words))}"
        self._digest.update(line.encode())
        self.story.append(line)

    def trace_hash(self) -> str:
        return self._digest.hexdigest()

    def run(self, until: Callable[[], bool], limit_us: int) -> bool:
        """Let time pass until ``until`` holds (checked as events happen) or ``limit_us`` have gone by."""
        end = self.now + limit_us
        steps = 0
        while self._heap and self._heap[0][0] <= end:
            self.now, _, action = heapq.heappop(self._heap)
            action()
            steps += 1
            if steps % 50 == 0 and until():
                return True
        self.now = max(self.now, end)
        return until()

    # --- workers -----------------------------------------------------------------------------------------

    def make_shard(self, *parts: Any) -> Any:
        return self.assembly.make_shard(*parts)

    def start_worker(self, slot: int) -> None:
        worker = SimWorker(self, slot)
        self.workers[worker.name] = worker
        self.trace("start", worker.name)
        self.members[worker.name] = worker.name
        for table in self.tables.values():
            self.tell_table(worker, table)
        self.later(self.delay(100, 3000), lambda: self.to_injector_hello(worker))
        self.members_changed()
        worker.wake(self.now)

    def exit(self, worker: SimWorker) -> None:
        """The process ends; its lines break, and the master sees it at once or after the session."""
        if not worker.alive:
            return
        worker.alive = False
        for line in [line for pair, line in self.lines.items() if worker.name in pair]:
            line.cut()
        if self.rng.random() < 0.5:
            gone = mev.WorkerUnreachable(incarnation=worker.name, reason="connection refused")
            self.later(self.delay(1_000, 50_000), lambda: self.to_master(gone))
        self.later(self.delay(200_000, 2_000_000), lambda: self.lose_member(worker.name))
        self.later(self.delay(10_000, 3_000_000), lambda: self.start_worker(worker.slot))

    def kill(self, worker: SimWorker) -> None:
        self.trace("kill", worker.name)
        self.exit(worker)

    def pause(self, worker: SimWorker, for_us: int) -> None:
        self.trace("pause", worker.name, for_us)
        worker.paused_until = self.now + for_us
        if for_us > 1_000_000:
            self.later(1_000_000, lambda: self.lose_member(worker.name))

    def lose_member(self, name: str) -> None:
        if self.members.pop(name, None) is not None:
            self.trace("lost", name)
            self.members_changed()

    def members_changed(self) -> None:
        for worker in list(self.workers.values()):
            self.later(self.delay(100, 5000), lambda w=worker: w.post(ev.WorkersChanged(dict(self.members))))
        self.later(self.delay(100, 5000), self.tell_master_members)

    def line(self, source: str, target: str) -> Line:
        line = self.lines.get((source, target))
        if line is None:
            line = self.lines[source, target] = Line(self, source, target)
        return line

    # --- tables ------------------------------------------------------------------------------------------

    def tell_table(self, worker: SimWorker, table: RangeTable) -> None:
        self.later(self.delay(100, 8000), lambda: worker.post(ev.TableChanged(table)))

    def write_table(self, table: RangeTable) -> mev.Event:
        stored = self.tables.get(table.computation)
        version = stored.version if stored is not None else -1
        if version != table.version:
            return mev.WriteConflicted(node=table.computation, stored=stored)
        self._check_tokens(stored, table)
        written = RangeTable(table.computation, table.shards, version + 1)
        self.tables[table.computation] = written
        self.trace("table", table.computation, [(e.shard, e.owner, e.token, e.next_owner) for e in table.shards])
        for worker in self.workers.values():
            self.tell_table(worker, written)
        self.later(self.delay(100, 8000), lambda: self.tell_injector_table(written))
        return mev.TableChanged(table=written)

    def _check_tokens(self, stored: RangeTable | None, table: RangeTable) -> None:
        for entry in table.shards:
            before = stored.entry(entry.shard) if stored is not None else None
            if before is not None and entry.token < before.token:
                raise Failure(f"token of {entry.shard} fell from {before.token} to {entry.token}")
            if (
                before is not None
                and entry.owner != before.owner
                and before.owner
                and not before.next_owner
                and not self.journals.journals[before.owner].sealed_end >= 0
            ):
                raise Failure(f"{entry.shard} moved from {before.owner}, whose journal is not sealed")

    # --- the master --------------------------------------------------------------------------------------

    def start_master(self) -> None:
        demands = tuple(NodeDemand(name=name, shards=2 * self.expected) for name in self.graph.nodes)
        self.master_life += 1
        self.master = MasterState(
            MasterConfig(nodes=demands, expected_workers=self.expected, grace_us=500_000, settle_us=300_000)
        )
        self.trace("master", self.master_life)
        self.to_master(mev.TablesLoaded(tables=tuple(self.tables.values())))
        self.tell_master_members()
        self.to_master(mev.JournalsFound(incarnations=tuple(self.journals.incarnations())))
        life = self.master_life
        self.later(1000, lambda: self._tick(life))

    def _tick(self, life: int) -> None:
        if life != self.master_life:
            return
        for shard in self.master.shards_with_lineage() if self.master else ():
            manifest = self.snapshots.latest(shard)
            if manifest is not None:
                self.to_master(mev.ManifestSeen(shard=shard, token=manifest.token, last_commit=manifest.last_commit))
        self.to_master(mev.Tick(now_us=self.now))
        self.later(50_000, lambda: self._tick(life))

    def tell_master_members(self) -> None:
        members = tuple(mev.Member(incarnation=name, address=name) for name in sorted(self.members))
        self.to_master(mev.MembersChanged(members=members))

    def to_master(self, event: mev.Event) -> None:
        if self.master is None:
            return
        life = self.master_life
        for effect in self.master.handle(event):
            self._perform(effect, life)

    def _perform(self, effect: mef.Effect, life: int) -> None:
        def answer(event: mev.Event) -> None:
            if life == self.master_life:
                self.to_master(event)

        def seal(name: str) -> None:
            end = self.journals.seal(name)
            self.trace("seal", name, end)
            self.later(self.delay(100, 3000), lambda: answer(mev.JournalSealed(incarnation=name, end=end)))

        match effect:
            case mef.SealJournal():
                self.later(self.delay(100, 5000), lambda: seal(effect.incarnation))
            case mef.WriteTable():

                def write() -> None:
                    if life == self.master_life or self.rng.random() < 0.5:
                        event = self.write_table(effect.table)
                        self.later(self.delay(100, 3000), lambda: answer(event))

                self.later(self.delay(100, 3000), write)
            case mef.RemoveMember():
                self.later(self.delay(100, 3000), lambda: self.lose_member(effect.incarnation))
            case mef.AttachWorker():
                worker = self.workers.get(effect.incarnation)
                if worker is not None:
                    self.later(self.delay(100, 3000), lambda: worker.post(ev.MasterAttached()))
            case mef.CollectJournal():
                self.trace("collect", effect.incarnation)
                self.later(self.delay(100, 3000), lambda: self.journals.collect(effect.incarnation))

    # --- the injector ------------------------------------------------------------------------------------

    def start_injector(self) -> None:
        self.injector_life += 1
        self.injector = InjectorState()
        self.trace("injector", self.injector_life)
        for table in self.tables.values():
            self.injector.handle(iev.TableChanged(table))
        for worker in self.workers.values():
            self.later(self.delay(100, 30_000), lambda w=worker: self.to_injector_hello(w))

    def tell_injector_table(self, table: RangeTable) -> None:
        if self.injector is not None:
            self._inject_effects(self.injector.handle(iev.TableChanged(table)))

    def to_injector_hello(self, worker: SimWorker) -> None:
        if self.injector is None or not worker.alive:
            return
        worker.connection = self.next_number()
        self._inject_effects(self.injector.handle(iev.Connected(worker.connection)))
        by_node: dict[str, list[ShardReport]] = {}
        for shard, report in worker.known.items():
            by_node.setdefault(shard.rpartition("-")[0], []).append(report)
        for node, reports in by_node.items():
            self.to_injector(worker, node, reports)

    def to_injector(self, worker: SimWorker, node: str, reports: list[ShardReport]) -> None:
        life = self.injector_life

        def arrive() -> None:
            if self.injector is None or life != self.injector_life:
                return
            columns = iev.ReportColumns.of(reports)
            self._inject_effects(self.injector.handle(iev.ReportsArrived(worker.connection, node, columns)))
            self._inject_effects(self.injector.handle(iev.PublishDue()))

        self.later(self.delay(50, 5000), arrive)

    def _inject_effects(self, effects: Sequence[ief.Effect]) -> None:
        for effect in effects:
            match effect:
                case ief.Broadcast():
                    self.check_watermarks(effect.watermarks)
                    for worker in self.workers.values():
                        self._tell_watermarks(worker, effect.watermarks)
                case ief.Picture() | ief.TokensKnown():
                    worker = next((w for w in self.workers.values() if w.connection == effect.connection), None)
                    if worker is not None and isinstance(effect, ief.Picture):
                        self._tell_watermarks(worker, effect.watermarks)
                    elif worker is not None and isinstance(effect, ief.TokensKnown):
                        for shard, token in effect.tokens.items():
                            known = ev.TokenKnown(shard, token)
                            self.later(self.delay(50, 5000), lambda w=worker, k=known: w.post(k))

    def _tell_watermarks(self, worker: SimWorker, watermarks: Mapping[str, int]) -> None:
        self.later(self.delay(50, 5000), lambda: worker.post(ev.WatermarksRose(dict(watermarks))))

    def check_watermarks(self, watermarks: Mapping[str, int]) -> None:
        """Low watermarks never pass what still waits to be produced or applied (checked by the workloads' results)."""

    def drained(self) -> bool:
        """True when every node's watermark says that nothing can come any more."""
        if self.injector is None:
            return False
        views = {view.node: view for view in self.injector.view()}
        return all(n in views and views[n].complete and views[n].watermark_us == MAX_TIME for n in self.graph.nodes)

    # --- faults ------------------------------------------------------------------------------------------

    def plan_faults(self, over_us: int) -> None:
        """Schedule faults over a span of time."""
        kinds = sorted(self.faults)
        if not kinds:
            return
        for _ in range(self.rng.randint(1, 12)):
            kind = self.rng.choice(kinds)
            self.later(self.rng.randint(100_000, over_us), lambda kind=kind: self.fault(kind))

    def fault(self, kind: str) -> None:
        alive = [worker for worker in self.workers.values() if worker.alive]
        worker = self.rng.choice(alive) if alive else None
        if kind == "kill" and worker is not None:
            self.kill(worker)
        elif kind == "pause" and worker is not None:
            self.pause(worker, self.rng.choice([50_000, 500_000, 2_500_000, 6_000_000]))
        elif kind == "cut" and self.lines:
            self.trace("cut")
            self.lines[self.rng.choice(sorted(self.lines))].cut()
        elif kind == "injector":
            self.start_injector()
        elif kind == "master":
            self.start_master()
        elif kind == "false-alarm" and worker is not None:
            self.trace("false alarm", worker.name)
            self.to_master(mev.WorkerUnreachable(incarnation=worker.name, reason="a hiccup"))
