"""The worker's gRPC service: the master's line, and records from outside. It only enqueues."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

import grpc

from millwheel.adapters.grpc.channels import new_server
from millwheel.adapters.grpc.security import Security
from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.adapters.pb.worker_pb2_grpc import WorkerServicer, add_WorkerServicer_to_server
from millwheel.core.model.names import ShardName, Token
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.ports import Post, ShardWork

_MAX_THREADS = 256  # calls at once
_MOST_LINES = 16  # attached masters: one leads, the others have not noticed yet that they do not
# that wait for their records to become durable: the other threads are for masters
_MOST_INJECTIONS = 224
# unread ones of a master: it does not take them, and is attached again if it lives
_MOST_REPORTS = 10_000
_INJECT_TIMEOUT_S = 30.0  # for injected records to become durable

_Line = queue.SimpleQueue[pb.WorkerReport | None]


class WorkerService(WorkerServicer):
    """Turns calls into events."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._attached: dict[_Line, grpc.ServicerContext] = {}  # in the order of their coming
        self._injections = threading.BoundedSemaphore(_MOST_INJECTIONS)
        self._lock = threading.Lock()

    def Attach(
        self, request: pb.AttachRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WorkerReport]:
        line: _Line = queue.SimpleQueue()
        context.add_callback(lambda: line.put(None))
        with self._lock:
            self._attached[line] = context
            displaced = list(self._attached)[:-_MOST_LINES]
        for each in displaced:
            self._end(each)
        self._post(ev.MasterAttached())
        yield pb.WorkerReport()
        try:
            while (report := line.get()) is not None:
                yield report
        finally:
            with self._lock:
                self._attached.pop(line, None)

    def _end(self, line: _Line) -> None:
        """End a line whose master takes nothing, or has to make room. One that lives attaches
        itself again."""
        with self._lock:
            context = self._attached.pop(line, None)
        if context is not None:
            context.cancel()  # a thread may be waiting for the master to take a report

    def send_to_masters(self, report: pb.WorkerReport) -> None:
        """Send a report to every attached master."""
        with self._lock:
            lines = list(self._attached)
        for line in lines:
            if line.qsize() < _MOST_REPORTS:
                line.put(report)
            else:
                self._end(line)

    def Inject(self, request: pb.InjectRequest, context: grpc.ServicerContext) -> pb.InjectReply:
        if not self._injections.acquire(blocking=False):
            text = "too many requests wait for their records; inject it again, under the same ids"
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        try:
            return self._injected(request, context)
        finally:
            self._injections.release()

    def _injected(self, request: pb.InjectRequest, context: grpc.ServicerContext) -> pb.InjectReply:
        answered = threading.Event()
        reply = pb.InjectReply()

        def answer(moved: bool, accepted: int, duplicates: int, rejected: int) -> None:
            reply.moved, reply.accepted, reply.duplicates, reply.rejected = (
                moved,
                accepted,
                duplicates,
                rejected,
            )
            answered.set()

        if not all(record.id for record in request.records):
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                "each record needs an id, by which a repetition is recognized",
            )
        values, ids = (
            [record.value for record in request.records],
            [record.id for record in request.records],
        )
        traces = [record.trace for record in request.records]
        contexts = traces if any(traces) else ()
        self._post(
            ev.Injected(request.stream, ShardName(request.target), values, ids, answer, contexts)
        )
        if not answered.wait(_INJECT_TIMEOUT_S):
            context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                "not durable yet; inject it again under the same ids",
            )
        return reply


class MasterReports:
    """The MasterLine port over the attached streams. Releases are repeated until the table has
    changed. ``memory`` returns the used share of the memory that this worker may use."""

    def __init__(self, service: WorkerService, memory: Callable[[], float]) -> None:
        self._service = service
        self._memory = memory

    def released(self, shard: ShardName, token: Token, last_commit: int) -> None:
        released = pb.Released(shard=shard, token=token, last_commit=last_commit)
        self._service.send_to_masters(pb.WorkerReport(released=[released]))

    def load(self, loads: Sequence[ShardWork]) -> None:
        rows = [
            pb.ShardLoad(
                shard=w.shard,
                token=w.token,
                records=w.records,
                busy_us=w.busy_us,
                sample=w.sample,
                state_bytes=w.state_bytes,
            )
            for w in loads
        ]
        self._service.send_to_masters(pb.WorkerReport(loads=rows, memory=self._memory()))


def serve(
    service: WorkerService, listen: str, security: Security | None = None
) -> tuple[grpc.Server, str]:
    """A started server and its address."""
    server, address = new_server(_MAX_THREADS, listen, security)
    add_WorkerServicer_to_server(service, server)
    server.start()
    return server, address
