"""The master process. It stands for election; while it leads, it steps the runtime and answers
requests over gRPC."""

from __future__ import annotations

import json
import logging
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import grpc

from millwheel.adapters.grpc.attach import WorkerLines
from millwheel.adapters.grpc.channels import CALL_TIMEOUT_S, new_server
from millwheel.adapters.grpc.security import Security
from millwheel.adapters.metrics.client import METRICS
from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.adapters.metrics.text import text_of
from millwheel.adapters.pb import master_pb2 as pb
from millwheel.adapters.pb import worker_pb2
from millwheel.adapters.pb.master_pb2_grpc import MasterServicer, add_MasterServicer_to_server
from millwheel.adapters.ports import Clock, Coordination, Journals, Snapshots
from millwheel.control.master.config import MasterConfig
from millwheel.control.master.events import (
    Event,
    LoadReported,
    ShardLoad,
    ShardReleased,
    WorkerUnreachable,
)
from millwheel.control.master.runtime import MasterPace, MasterPorts, MasterRuntime, MasterView
from millwheel.control.master.state import MasterState
from millwheel.control.master.tables.resharding import Merge, Resharding, Split
from millwheel.core import metrics as c
from millwheel.core.metrics import Figure
from millwheel.core.model.names import NodeName, ShardName, Token, WorkerName
from millwheel.errors import FencedError, InvariantError

log = logging.getLogger("millwheel.master")

ROLE = "masters"
_MAX_THREADS = 32  # workers and commands at once
_SEALS_AT_ONCE = 8
"""The journals of a lost host that are sealed at once; each waits some six times for a disk."""


@dataclass(frozen=True, slots=True)
class _MoveAsked:
    """A request to the loop; ``answer`` may be called on the thread of the loop."""

    request: pb.MoveRequest
    answer: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Won:
    """This master leads."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """The process ends; ``lost``: because its session was lost."""

    lost: bool


@dataclass(frozen=True, slots=True)
class _ReshardAsked:
    """As :class:`_MoveAsked`, for a split or merge."""

    resharding: Resharding
    answer: Callable[[str], None]


_Item = Event | _MoveAsked | _ReshardAsked | _Won | _Ending


@dataclass(frozen=True, slots=True)
class MasterOutside:
    """The outside systems of a master."""

    clock: Clock
    coordination: Coordination
    journals: Journals
    snapshots: Snapshots
    security: Security | None = None
    pipeline: str = ""


class MasterService(MasterServicer):
    """Answers from the newest view, and passes requests to the loop."""

    def __init__(self, put: Callable[[_Item], None]) -> None:
        self._put = put
        self.view: Callable[[], MasterView] | None = None

    def Describe(
        self, request: pb.DescribeRequest, context: grpc.ServicerContext
    ) -> pb.DescribeReply:
        view = self._leading(context)()
        members = [
            pb.MemberState(
                worker=name, weight=state.weight, slowness=state.slowness, memory=state.memory
            )
            for name, state in view.members.items()
        ]
        exposures = [
            pb.HostLoss(host=e.host, serving=e.serving, spares=e.spares) for e in view.exposures
        ]
        if request.members_only:
            return pb.DescribeReply(workers=view.workers, members=members, exposures=exposures)
        work = [
            pb.Work(shard=s, busy=load.busy, records_per_s=load.records_per_s)
            for s, load in view.loads.items()
        ]
        tables = [table.encode() for table in view.tables]
        return pb.DescribeReply(
            workers=view.workers, tables=tables, work=work, members=members, exposures=exposures
        )

    def Move(self, request: pb.MoveRequest, context: grpc.ServicerContext) -> pb.MoveReply:
        self._leading(context)
        return self._answered(context, lambda answer: _MoveAsked(request, answer))

    def Reshape(self, request: pb.ReshapeRequest, context: grpc.ServicerContext) -> pb.MoveReply:
        view = self._leading(context)()
        try:
            requested = _resharding(request, view)
        except ValueError as error:
            return pb.MoveReply(accepted=False, reason=str(error))
        return self._answered(context, lambda answer: _ReshardAsked(requested, answer))

    def _answered(
        self, context: grpc.ServicerContext, make_item: Callable[[Callable[[str], None]], _Item]
    ) -> pb.MoveReply:
        """The loop's answer to a request."""
        answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._put(make_item(answers.put))
        try:
            refusal = answers.get(timeout=CALL_TIMEOUT_S)
        except queue.Empty:
            context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                "the table does not show it yet; look again later",
            )
            raise
        return pb.MoveReply(accepted=not refusal, reason=refusal)

    def _leading(self, context: grpc.ServicerContext) -> Callable[[], MasterView]:
        """The view of the leading master. On a standby it ends the call."""
        if self.view is None:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "this master stands by; ask the one that leads"
            )
            raise InvariantError("gRPC went on after an abort")
        return self.view


def _resharding(request: pb.ReshapeRequest, view: MasterView) -> Resharding:
    """The requested split or merge. Raises ValueError, with a sentence, for a value that cannot be
    an edge."""
    node, shard = NodeName(request.node), ShardName(request.shard)
    if request.merge_with:
        return Merge(node, shard, ShardName(request.merge_with))
    if request.at:
        try:
            return Split(node, shard, int(request.at, 16))
        except ValueError:
            raise ValueError(
                f"{request.at[:40]!r} is not a hash: give up to 16 hex digits"
            ) from None
    entries = (table.entry(shard) for table in view.tables)
    entry = next((each for each in entries if each is not None), None)
    return Split(node, shard, (entry.range.lo + entry.range.hi) // 2 if entry else 0)


class MasterProcess:
    """One master, leading or standing by. :meth:`run` uses the thread that calls it."""

    def __init__(
        self, config: MasterConfig, outside: MasterOutside, listen: str, pace: MasterPace
    ) -> None:
        self._outside = outside
        self._pace = pace
        self._items: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._name = f"m-{uuid4().hex[:12]}"
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="background")
        self._sealers = ThreadPoolExecutor(_SEALS_AT_ONCE, thread_name_prefix="seals")
        self._lines = WorkerLines(self._name, self._on_report, self._on_dead, outside.security)
        ports = MasterPorts(
            outside.clock,
            outside.coordination,
            outside.journals,
            outside.snapshots,
            self._lines,
            self._items.put,
            partial(_guarded, self._pool),
            partial(_guarded, self._sealers),
        )
        self._runtime = MasterRuntime(MasterState(config), ports, pace)
        self._service = MasterService(self._items.put)
        self._server, self.address = new_server(_MAX_THREADS, listen, outside.security)
        add_MasterServicer_to_server(self._service, self._server)
        labels = {"pipeline": outside.pipeline, "process": "master"}
        pages = {METRICS: lambda: text_of(figures_of(self._runtime.view), labels)}
        self._endpoint = Endpoint(f"{listen.rpartition(':')[0]}:0", outside.security, pages)

    def stop(self) -> None:
        """Make :meth:`run` return soon; may be called on any thread and in a signal handler."""
        self._items.put(_Ending(lost=False))

    def run(self) -> None:
        """Stand for election, lead when elected, until stopped.

        Raises FencedError when the session is lost, because another master may lead by now, and
        UnavailableError when ZooKeeper fails while the lead is taken.
        """
        coordination = self._outside.coordination
        coordination.on_lost(lambda: self._items.put(_Ending(lost=True)))
        self._server.start()
        self._endpoint.start()
        try:
            coordination.elect(ROLE, self._name, self._facts(), lambda: self._items.put(_Won()))
            log.info("Master %s stands by at %s.", self._name, self.address)
            self._loop()
        finally:
            self._server.stop(grace=None)
            self._endpoint.close()
            self._lines.close()
            for pool in (self._pool, self._sealers):
                pool.shutdown(wait=False, cancel_futures=True)

    def _facts(self) -> bytes:
        return json.dumps({"address": self.address, "metrics": self._endpoint.address}).encode()

    def _loop(self) -> None:
        wake_us: int | None = None
        while True:
            items = self._take(wake_us)
            ending = next((item for item in items if isinstance(item, _Ending)), None)
            if ending is not None and ending.lost:
                raise FencedError(
                    "the master's session with ZooKeeper is lost: another one may lead by now"
                )
            if ending is not None:
                return
            if any(isinstance(item, _Won) for item in items):
                self._lead()
                wake_us = 0
            if wake_us is not None:
                wake_us = self._step(items)

    def _lead(self) -> None:
        log.info("Master %s leads.", self._name)
        self._runtime.begin()
        self._service.view = lambda: self._runtime.view

    def _step(self, items: Sequence[_Item]) -> int:
        events: list[Event] = []
        for item in items:
            if isinstance(item, _MoveAsked):
                request = item.request
                self._runtime.ask_move(
                    NodeName(request.node),
                    ShardName(request.shard),
                    WorkerName(request.worker),
                    item.answer,
                )
            elif isinstance(item, _ReshardAsked):
                self._runtime.ask_reshard(item.resharding, item.answer)
            elif not isinstance(item, _Won | _Ending):
                events.append(item)
        return self._runtime.step(events)

    def _take(self, wake_us: int | None) -> list[_Item]:
        """All queued items; waits for the first one, at most until ``wake_us``."""
        items: list[_Item] = []
        try:
            wait_s = (
                None
                if wake_us is None
                else max(0.0, (wake_us - self._outside.clock.monotonic_us()) / 1e6)
            )
            items.append(self._items.get(timeout=wait_s))
            while True:
                items.append(self._items.get_nowait())
        except queue.Empty:
            return items

    def _on_dead(self, incarnation: WorkerName, reason: str) -> None:
        self._items.put(WorkerUnreachable(incarnation=incarnation, reason=reason))

    def _on_report(self, incarnation: WorkerName, report: worker_pb2.WorkerReport) -> None:
        for released in report.released:
            self._items.put(
                ShardReleased(
                    incarnation=incarnation,
                    shard=ShardName(released.shard),
                    token=Token(released.token),
                    last_commit=released.last_commit,
                )
            )
        if report.loads:
            loads = tuple(
                ShardLoad(
                    shard=ShardName(load.shard),
                    token=Token(load.token),
                    records=load.records,
                    state_bytes=load.state_bytes,
                    busy_us=load.busy_us,
                    sample=tuple(load.sample),
                )
                for load in report.loads
            )
            self._items.put(
                LoadReported(incarnation=incarnation, loads=loads, memory=report.memory)
            )


def _guarded(pool: ThreadPoolExecutor, work: Callable[[], None]) -> None:
    def guarded() -> None:
        try:
            work()
        except Exception:
            log.exception("Work in the background failed; it is tried again later.")

    pool.submit(guarded)


def figures_of(view: MasterView) -> Iterator[Figure]:
    """The number of living workers and how slow each is, the seats that the loss of a host would
    leave empty, and for each node the number of shards with an owner."""
    yield Figure(c.LIVE_WORKERS, len(view.workers))
    for worker, state in view.members.items():
        yield Figure(c.SLOWNESS, state.slowness, (worker,))
    for loss in view.exposures:
        yield Figure(c.EXPOSED_SEATS, loss.missing, (loss.host,))
    alive = set(view.workers)
    for table in view.tables:
        owned = sum(entry.owner in alive for entry in table.shards)
        yield Figure(c.OWNED_SHARDS, owned, (table.computation,))
        yield Figure(c.ORPHANED_SHARDS, len(table.shards) - owned, (table.computation,))
