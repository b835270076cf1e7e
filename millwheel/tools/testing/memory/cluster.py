"""Workers, injector, tables and durable store of one pipeline, in one thread and in memory.

The loops, shards, operators, journals, snapshots, recovery, watermark service and table succession
are the real ones. Work is done in the order in which it was queued, so the same calls give the same
run. A crash loses all processes and everything that is not synced; the next workers take over the
shards as a master would assign them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from millwheel.adapters.ports import StateStore
from millwheel.control.injector import effects as ief
from millwheel.control.injector import events as iev
from millwheel.control.injector.state import InjectorState
from millwheel.control.master.tables.planner import Census
from millwheel.control.master.tables.succession import Situation, successor
from millwheel.core.model.names import (
    NO_TOKEN,
    NO_WORKER,
    NodeName,
    ShardName,
    Token,
    WorkerName,
    shard_name,
)
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.watermark import ShardReport
from millwheel.core.pipeline.graph import Graph
from millwheel.core.pipeline.replays import ReplayOrder
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.loop.runtime import MakeShard
from millwheel.engine.workers.shard.shard import Shard
from millwheel.engine.workers.sources.source import SourceOperator
from millwheel.engine.workers.store_read import StoreRead
from millwheel.errors import MillwheelError
from millwheel.tools.testing.memory.storage import MemoryStorage
from millwheel.tools.testing.memory.worker import MemoryWorker, Work

_ENDLESS = 2_000_000  # steps after which a pipeline is reported never to come to rest
_LONGER = 10  # the factor by which crashes become rarer while there is no progress


class ManualClock:
    """A wall clock that a test moves."""

    def __init__(self, now_us: int) -> None:
        self.now = now_us

    def now_us(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        return self.now


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The number of ``shards`` per node and of ``workers`` that share them, and the journaled bytes
    after which a shard is snapshotted.

    ``crash_every``: everything crashes after each this many units of work. Each life lasts a little
    longer than the one before until the pipeline rests, so that there is progress. ``crash_at``:
    everything crashes once, after this unit. ``service_lives``: the watermark service survives
    crashes of the workers.
    """

    shards: int = 2
    workers: int = 2
    snapshot_bytes: int = 8192
    crash_every: int | None = None
    crash_at: int | None = None
    service_lives: bool = False


class MemoryCluster:
    """Runs the nodes of ``graph``; ``single`` names nodes that have one shard with any options."""

    def __init__(
        self,
        graph: Graph,
        make_shard: MakeShard,
        clock: ManualClock,
        options: ClusterOptions,
        single: Sequence[str],
    ) -> None:
        self.graph = graph
        self.clock = clock
        self.options = options
        self.storage = MemoryStorage()
        self.shards: dict[str, Shard] = {}
        """The machines of all shards that are open."""
        self.units = 0
        """Units of work done so far."""
        self.crashes = 0
        self._make_shard = make_shard
        self.later: tuple[Graph, MakeShard] | None = None
        """The pipeline that processes run from the next crash on."""
        self._single = frozenset(single)
        self._work: deque[Work] = deque()
        self._since = 0
        self._restless = 0
        self._lives = 0
        self._workers: dict[str, MemoryWorker] = {}
        self._tables: dict[str, RangeTable] = {}
        self._sealed: set[WorkerName] = set()
        """The dead whose journals are kept."""
        self._orders: list[ReplayOrder] = []
        self._injector = InjectorState()
        self._start()
        self.settle()

    # --- work -------------------------------------------------------------------------------------

    def do_later(self, work: Work) -> None:
        """Queue a unit of work."""
        self._work.append(work)

    def settle(self) -> None:
        """Work until nothing is left to do unless the clock moves or input arrives."""
        done = self._restless = 0
        while self._work:
            self._work.popleft()()
            self.units += 1
            self._since += 1
            done += 1
            if done > _ENDLESS:
                raise MillwheelError(
                    f"the pipeline did not come to rest within {_ENDLESS} steps; does a timer set"
                    " itself again without moving on, or a computation feed itself without end?"
                )
            if self._must_crash():
                self.crash()

    def _must_crash(self) -> bool:
        if self.units == self.options.crash_at:
            return True
        every = self.options.crash_every
        return every is not None and self._since >= every + _LONGER * self._restless

    # --- time -------------------------------------------------------------------------------------

    def advance_clock(self, to: int) -> None:
        """Move the clock step by step, so that each timer fires at its own time."""
        while (
            wakes_at_us := min(
                (worker.wakes_at_us for worker in self._workers.values()), default=to
            )
        ) < to:
            self._move_clock(max(wakes_at_us, self.clock.now + 1))
        self._move_clock(to)

    def _move_clock(self, to: int) -> None:
        self.clock.now = to
        self.look()

    def post(self, shard: Shard, news: Callable[[int], None]) -> None:
        """Call ``news`` with the time (µs) in the loop of the worker that serves a shard, before
        its next bundle."""
        for worker in self._workers.values():
            worker.post(ev.WorkDone(shard.identity.shard, shard.identity.token, news))

    def order(self, order: ReplayOrder) -> None:
        """Pass on an order to replay dead letters."""
        self._orders.append(order)
        for worker in self._workers.values():
            worker.post(ev.ReplayOrdered(order, at_start=False))
        self.settle()

    def read(self, streams: Sequence[str]) -> None:
        """Let the sources of these streams look for new input, and the workers process it."""
        for stream in streams:
            for shard in self.shards_of(f"source.{stream}"):
                assert isinstance(shard.operator, SourceOperator)
                self.post(shard, shard.operator.look)
        for shard in self.shards.values():
            if shard.operator.paused:  # perhaps until one of these streams has ended
                self.post(shard, lambda now_us: None)
        self.look()

    def look(self) -> None:
        """Let every worker check clock and input, then work until all rest."""
        for worker in self._workers.values():
            worker.wake()
        self.settle()

    def validate(self) -> None:
        """Raise InvariantError unless all shards and the watermark service hold together."""
        for worker in self._workers.values():
            worker.validate()
        self._injector.validate()

    # --- lives ------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Kill every process and drop unsynced data; new processes continue from the rest."""
        self.validate()
        self.crashes += 1
        self._restless += 1
        dead, connections = (
            list(self._workers),
            [worker.connection for worker in self._workers.values()],
        )
        self._work.clear()
        self._workers.clear()
        self.shards.clear()
        self.graph, self._make_shard = self.later or (self.graph, self._make_shard)
        self.storage.crash()
        if not self.options.service_lives:
            self._injector = InjectorState()
        for connection in connections:
            self._injector.handle(iev.Disconnected(connection))
        journals = self.storage.journals()
        ends = {WorkerName(name): journals.seal(name) for name in dead}
        self._sealed.update(ends)
        self._start(ends)
        named = {
            ancestor.incarnation
            for table in self._tables.values()
            for e in table.shards
            for ancestor in e.lineage
        }
        for name in sorted(self._sealed - named):
            journals.collect(name)
        self._sealed &= named

    def _start(self, dead: Mapping[WorkerName, int] | None = None) -> None:
        self._since = 0
        self._lives += 1
        for slot in range(self.options.workers):
            name = f"w{slot}-{self._lives}"
            self._workers[name] = MemoryWorker(
                self, name, self._lives * self.options.workers + slot
            )
        self._assign(dead or {})
        for table in self._tables.values():
            self._inject(self._injector.handle(iev.RangesChanged(table)))
        members = ev.WorkersChanged({name: name for name in self._workers})
        for worker in self._workers.values():
            for order in self._orders:
                worker.post(ev.ReplayOrdered(order, at_start=True))
            worker.post(members)
            for table in self._tables.values():
                worker.post(ev.TableChanged(table))
            self._inject(self._injector.handle(iev.Connected(worker.connection)))

    def _assign(self, dead: Mapping[WorkerName, int]) -> None:
        census = Census(list(map(WorkerName, self._workers)), ())
        snapshots = self.storage.snapshots()
        for node in self.graph.nodes:
            table = self._tables.get(node) or self._first_table(node)
            manifests = {entry.shard: snapshots.latest(entry.shard) for entry in table.shards}
            tokens = {
                shard: manifest.token
                for shard, manifest in manifests.items()
                if manifest is not None
            }
            now_us = Situation(
                eligible=list(map(WorkerName, self._workers)), dead=dead, manifest_tokens=tokens
            )
            self._tables[node] = replace(
                successor(table, now_us, census), version=table.version + 1
            )

    def _first_table(self, node: str) -> RangeTable:
        ranges = tile(1 if node in self._single else self.options.shards, self.graph.grain(node))
        return RangeTable(
            NodeName(node),
            tuple(
                ShardEntry(shard_name(node, i), r, NO_WORKER, NO_TOKEN)
                for i, r in enumerate(ranges)
            ),
        )

    # --- requests of workers ----------------------------------------------------------------------

    def worker(self, name: str) -> MemoryWorker:
        """The live worker of that name."""
        return self._workers[name]

    def make_shard(
        self,
        node: NodeName,
        entry: ShardEntry,
        store: StateStore,
        router: TableRouter,
        opened: StoreRead | None = None,
    ) -> Shard:
        """Create the machine of a shard, and keep it for inspection."""
        shard = self.shards[entry.shard] = self._make_shard(node, entry, store, router, opened)
        return shard

    def reported(self, connection: int, by_node: Mapping[NodeName, Sequence[ShardReport]]) -> None:
        """A worker reports the state of its shards to the watermark service."""
        for node, reports in by_node.items():
            columns = iev.ReportColumns.of(reports)
            self._inject(self._injector.handle(iev.ReportsArrived(connection, node, columns)))
            self._inject(self._injector.handle(iev.PublishDue()))

    def _inject(self, effects: Sequence[ief.Effect]) -> None:
        for effect in effects:
            match effect:
                case ief.Broadcast():
                    for worker in self._workers.values():
                        worker.post(ev.WatermarksRose(effect.watermarks))
                case ief.Greet():
                    self._connected(effect.connection).post(ev.WatermarksRose(effect.watermarks))
                case ief.Tallies():
                    for worker in self._workers.values():
                        worker.post(ev.TalliesChanged(effect.tallies))
                case ief.TokensConfirmed():
                    for shard, token in effect.tokens.items():
                        self._connected(effect.connection).post(
                            ev.TokenKnown(ShardName(shard), Token(token))
                        )

    def _connected(self, connection: int) -> MemoryWorker:
        return next(worker for worker in self._workers.values() if worker.connection == connection)

    # --- looking in -------------------------------------------------------------------------------

    def shard_of(self, node: str, key_hash: int) -> Shard:
        """The shard of ``node`` that serves a key."""
        entry = next(entry for entry in self._tables[node].shards if key_hash in entry.range)
        return self.shards[entry.shard]

    def shards_of(self, node: str) -> list[Shard]:
        """All shards of ``node``."""
        return [self.shards[entry.shard] for entry in self._tables[node].shards]
