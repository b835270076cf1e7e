"""One life of a worker: build the ports, join, and run the loop until it ends."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from time import sleep
from uuid import uuid4

from millwheel.adapters.clock import SteadyClock, SystemClock
from millwheel.adapters.exchange.mailbox import Mailbox
from millwheel.adapters.grpc.security import Security
from millwheel.adapters.grpc.watermark_client import InjectorClient
from millwheel.adapters.metrics.spans import OtlpSpans, configured
from millwheel.adapters.ports import Coordination, Journals, Snapshots, StateStores
from millwheel.adapters.processes.logs import follow
from millwheel.control.savepoints.orders import ORDERS
from millwheel.core.model.names import ShardName, Token, WorkerName
from millwheel.core.model.range_table import RangeTable
from millwheel.core.pipeline.query_changes import QUERIES_ROLE
from millwheel.core.pipeline.spec import AggregationStage
from millwheel.core.tracing import NoSpans, SpanCounts
from millwheel.engine.queries.named_queries import ChangesRead
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.hangs import Hangs, Notes
from millwheel.engine.workers.bundle.work_note import DoingNote
from millwheel.engine.workers.dictionaries.store_form import NumbersRead
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.engine.workers.host.metrics_port import Observed
from millwheel.engine.workers.host.query_port import Queried
from millwheel.engine.workers.host.transport import ExchangeTransport
from millwheel.engine.workers.host.watchdog import Tidying, Watchdog
from millwheel.engine.workers.loop.pace import RuntimeLimits, StepPace
from millwheel.engine.workers.loop.runtime import WorkerRuntime
from millwheel.engine.workers.machine import MachineFacts
from millwheel.engine.workers.ports import WorkerPorts
from millwheel.engine.workers.queries.copies import FollowedCopies
from millwheel.engine.workers.queries.snapshots import SnapshotCopies, SnapshotFolder
from millwheel.engine.workers.queries.store_answers import StoreAnswers
from millwheel.engine.workers.recovery.following import Following, Standbys
from millwheel.engine.workers.recovery.journal_reads import ReadOnce
from millwheel.engine.workers.server import MasterReports, WorkerService, serve
from millwheel.engine.workers.threads.aside import PendingReplays, PublishThreads, ReplayThread
from millwheel.engine.workers.threads.copies import (
    Copying,
    OrderAnswers,
    SavepointThread,
    SnapshotThread,
)
from millwheel.engine.workers.threads.journal import JournalThread
from millwheel.engine.workers.threads.recovery import Recovering, RecoveryThread, StandbyThread
from millwheel.engine.workers.tracing.tracing import Tracing

_MAX_EVENTS = 2_000  # that a step takes: more would make the commit wait
_REPLAYS_S = {True: 1.0, False: 10.0}
"""How often a worker looks whether dead letters are to be tried again."""
_SWITCH_INTERVAL_S = 0.0005  # of the interpreter's lock: threads hand it back to the loop sooner
_FOLLOW_S = {True: 0.1, False: 1.0}
"""How often a standby looks for new commits: where commits are quick, so are looks; elsewhere each
costs requests."""
GC_THRESHOLDS = (200_000, 20, 50)
"""Bundles on their way are tens of thousands of objects without cycles that live until their end:
the garbage collector need not look while there are no more of them than usual. A look at all takes
ten milliseconds."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Where a worker lives."""

    slot: int
    scratch: str
    listen: str
    security: Security | None = None
    queries: str = ""
    """Where queries are answered (host:port); "": nowhere."""
    machine: MachineFacts = field(default_factory=MachineFacts)
    on_hang: Callable[[], None] = sys.exit
    """Ends the process when a callback does not return; called on another thread."""
    doing: DoingNote | None = None
    """Where the current work of the loop is noted, for the process that sees this one die."""


@dataclass(frozen=True, slots=True)
class WorkerStorage:
    """The durable store and the local one. ``savepoints`` opens the snapshots of a savepoint by its
    folder."""

    journals: Journals
    snapshots: Snapshots
    stores: StateStores
    savepoints: Callable[[str], Snapshots]
    notes: Notes
    replays: PendingReplays
    queries: ChangesRead


class WorkerProcess:
    """Everything of one worker process. The loop runs on the thread that calls :meth:`run`."""

    def __init__(
        self,
        settings: WorkerSettings,
        assembly: Assembly,
        coordination: Coordination,
        storage: WorkerStorage,
    ) -> None:
        self.incarnation = WorkerName(f"w{settings.slot}-{uuid4().hex[:12]}")
        self._settings = settings
        self._coordination = coordination
        self._events = Mailbox()
        self._injector_address: str | None = None
        self._clock = SteadyClock(SystemClock())
        writer = storage.journals.create(self.incarnation)
        journal = JournalThread(writer, self._events.put)
        self._service = WorkerService(self._events.put)
        host = settings.listen.rpartition(":")[0]
        labels = {"pipeline": assembly.spec.name, "process": f"worker-{settings.slot}"}
        self._spans = (
            OtlpSpans(assembly.spec.name, labels["process"])
            if assembly.spec.tracing and configured()
            else None
        )
        self._tracing = self._traced(assembly, labels["process"])
        self._transport = ExchangeTransport(
            f"{host}:0", self._events, settings.security, self._tracing
        )
        self._injector = InjectorClient(
            lambda: self._injector_address,
            lambda watermarks: self._events.put(ev.WatermarksRose(watermarks)),
            lambda shard, token: self._events.put(ev.TokenKnown(ShardName(shard), Token(token))),
            settings.security,
            lambda tallies: self._events.put(ev.TalliesChanged(tallies)),
        )
        scratch, post = settings.scratch, self._events.put
        assembly.publish_aside(PublishThreads(post).publish)
        assembly.warm_up()
        assembly.stop_broken()
        spec_limits = assembly.spec.limits
        hangs = Hangs(storage.notes, spec_limits.hangs, settings.doing)
        assembly.watch(hangs)
        finals = [
            each.name for each in assembly.spec.computations if each.stage is AggregationStage.FINAL
        ]
        arguments = (
            labels,
            self._events.put,
            journal.written,
            hangs,
            self._span_counts,
            settings.scratch,
        )
        self._observed = Observed(*arguments, finals)
        self._watchdog = (
            Tidying(hangs)
            if spec_limits.callback_us is None
            else Watchdog(hangs, spec_limits.callback_us, settings.on_hang)
        )
        monotonic_us = self._clock.monotonic_us
        following = Following(
            storage.stores, storage.snapshots, storage.journals, scratch, Lock, monotonic_us
        )
        standbys = Standbys(following)
        reads = ReadOnce(storage.journals, Lock())
        numbers = NumbersRead(assembly.spec.computations)
        recovering = Recovering(
            storage.stores,
            storage.snapshots,
            storage.journals,
            scratch,
            hangs,
            standbys,
            reads,
            numbers,
        )
        copying = Copying(storage.savepoints, journal.check)
        opening = ThreadPoolExecutor(1, "snapshots asked")
        opened = SnapshotCopies(
            SnapshotFolder(
                storage.stores, storage.snapshots, scratch, Lock, opening.submit, monotonic_us
            )
        )
        ports = WorkerPorts(
            clock=self._clock,
            transport=self._transport,
            journal=journal,
            recoveries=RecoveryThread(recovering, post),
            snapshots=SnapshotThread(storage.snapshots, scratch, journal.check, post),
            reports=self._injector,
            master=MasterReports(self._service, self._observed.health.memory),
            savepoints=SavepointThread(
                copying, OrderAnswers(coordination, self.incarnation), scratch, post
            ),
            followers=StandbyThread(standbys, _FOLLOW_S[writer.quick], post),
            copies=FollowedCopies(
                standbys, StoreAnswers(assembly.spec).answer, monotonic_us, opened
            ),
            tracing=self._tracing,
        )
        for order in storage.replays.undone().values():
            self._events.put(ev.ReplayOrdered(order, at_start=True))
        ReplayThread(storage.replays, _REPLAYS_S[writer.quick], post)
        self._check_seal = journal.check
        where = settings.queries
        self._queried = (
            Queried(where, self.incarnation, assembly.spec, settings.security, storage.queries)
            if where
            else None
        )
        self._pace = StepPace(assembly.spec.latency_us)
        limits = RuntimeLimits.for_pipeline(assembly.spec.latency_us, assembly.waits_for_time())
        self._runtime = WorkerRuntime(
            self.incarnation, assembly.graph, assembly.make_shard, ports, limits
        )

    def stop(self) -> None:
        """Ask the loop to finish what is in flight and end (any thread, or a signal handler)."""
        self._events.put(ev.StopAsked())

    def run(self) -> None:
        """Join and work until stopped. Raises the error that ends the worker: FencedError,
        CorruptionError, SetupError."""
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        follow(self._observed.current)
        server, address = serve(self._service, self._settings.listen, self._settings.security)
        self._coordination.on_lost(lambda: self._events.put(ev.SessionLost()))
        self._coordination.watch_members("injector-leader", self._injector_moved)
        self._coordination.watch_members("workers", self._workers_changed)
        self._coordination.watch_tables(self._table_changed)
        self._coordination.watch_members(
            ORDERS, lambda members: self._events.put(ev.OrdersChanged(members))
        )
        self._coordination.join(
            "workers", self.incarnation, json.dumps(self._facts(address)).encode()
        )
        if self._queried is not None:
            on_change = self._queried.changed
            self._coordination.watch_members(QUERIES_ROLE, lambda _: on_change())
        self._watchdog.start()
        try:
            self._loop()
        finally:
            server.stop(grace=None)
            self._transport.close()
            if self._spans is not None:
                self._spans.close()

    def _traced(self, assembly: Assembly, name: str) -> Tracing | None:
        spec = assembly.spec
        if spec.tracing is None:
            return None
        return Tracing(spec.tracing, spec.name, name, self._spans or NoSpans(), self._clock.now_us)

    def _span_counts(self) -> SpanCounts | None:
        if self._spans is None or self._tracing is None:
            return None
        return SpanCounts(*self._spans.counts(), self._tracing.left_out[0])

    def _loop(self) -> None:
        events: list[ev.Event] = []
        while True:
            self._observed.begins()
            began_us = self._clock.monotonic_us()
            wake_at = self._runtime.step(events)
            self._observed.ended()
            # asked before we sleep: nothing wakes a worker that is done
            if self._runtime.finished():
                return
            # it has left no work: events that come now share the next step
            if wake_at > self._runtime.stepped_at_us:
                sleep(self._pace.rest_us(began_us, self._clock.monotonic_us()) / 1e6)
            wait_us = wake_at - self._clock.now_us()
            events = self._transport.take(wait_us, _MAX_EVENTS)

    def _facts(self, address: str) -> dict[str, object]:
        """The published data of this worker: ``address`` takes calls, ``exchange`` deliveries,
        ``metrics`` questions by HTTP, ``queries`` those for results by the Redis protocol ("":
        none). For ``host``, ``rack`` and ``weight`` see :class:`MachineFacts`."""
        machine = self._settings.machine
        return {
            "address": address,
            "exchange": self._transport.address,
            "metrics": self._observed.serve(self._settings.listen, self._settings.security),
            "queries": self._answers_at(),
            "host": machine.host,
            "rack": machine.rack,
            "slot": self._settings.slot,
            "weight": machine.weight,
            "pid": os.getpid(),
        }

    def _injector_moved(self, members: Mapping[str, bytes]) -> None:
        self._injector_address = next(
            (json.loads(data)["address"] for data in members.values()), None
        )
        self._injector.leader_changed()

    def _answers_at(self) -> str:
        if self._queried is None:
            return ""
        post = self._events.put
        return self._queried.begin(
            lambda queries: post(ev.QueriesCame(queries)),
            self._check_seal,
            self._clock.now_us,
            self._observed.health,
        )

    def _table_changed(self, table: RangeTable) -> None:
        if self._queried is not None:
            self._queried.table(table)
        self._events.put(ev.TableChanged(table))

    def _workers_changed(self, members: Mapping[str, bytes]) -> None:
        if self._queried is not None:
            self._queried.workers(members)
        facts = {name: json.loads(data) for name, data in members.items()}
        addresses = {name: each["exchange"] for name, each in facts.items()}
        locations = {
            name: (each.get("host", ""), each.get("rack", "")) for name, each in facts.items()
        }
        self._events.put(ev.WorkersChanged(addresses, locations))


def clean_scratch(folder: str) -> str:
    """The scratch folder of one life, created; local stores are a cache and start empty."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return str(path)
