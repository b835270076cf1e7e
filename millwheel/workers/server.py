"""The worker's gRPC face: deliveries from peers, the master's line, records from outside. It only enqueues."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import grpc

from millwheel.adapters.grpc_common import new_server
from millwheel.adapters.grpc_exchange import PeerLines
from millwheel.adapters.grpc_security import Security
from millwheel.core.codec import decode_batch, encode_batch
from millwheel.errors import CorruptionError
from millwheel.pb import worker_pb2 as pb
from millwheel.pb.worker_pb2_grpc import WorkerServicer, add_WorkerServicer_to_server
from millwheel.workers import events as ev
from millwheel.workers.outbox import Send
from millwheel.workers.ports import ShardWork

_MAX_THREADS = 256
_INJECT_TIMEOUT_S = 30.0

Post = Callable[[ev.Event], None]


class Connection:
    """One peer that sends to us; answers are collected per loop step and sent as one frame."""

    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[pb.Frame | None] = queue.SimpleQueue()
        self.building = pb.Frame()


class WorkerService(WorkerServicer):
    """Turns calls into events."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._attached: list[queue.SimpleQueue[pb.WorkerReport | None]] = []
        self._lock = threading.Lock()

    def Exchange(self, request_iterator: Iterable[pb.Frame], context: grpc.ServicerContext) -> Iterator[pb.Frame]:
        connection = Connection()
        reader = threading.Thread(target=self._read, args=(request_iterator, connection), daemon=True)
        reader.start()
        while (frame := connection.frames.get()) is not None:
            yield frame

    def _read(self, frames: Iterable[pb.Frame], connection: Connection) -> None:
        try:
            for frame in frames:
                for delivery in frame.deliveries:
                    self._deliver(delivery, connection)
        except (grpc.RpcError, CorruptionError):
            pass  # the stream ends; the sender sees it and starts over
        finally:
            connection.frames.put(None)

    def _deliver(self, d: pb.Delivery, connection: Connection) -> None:
        batch = decode_batch(d.batch)
        event = ev.DeliveryCame(d.channel, d.node, d.target, d.target_token, d.epoch, d.index, batch, connection)
        self._post(event)

    def Attach(self, request: pb.AttachRequest, context: grpc.ServicerContext) -> Iterator[pb.WorkerReport]:
        line: queue.SimpleQueue[pb.WorkerReport | None] = queue.SimpleQueue()
        context.add_callback(lambda: line.put(None))
        with self._lock:
            self._attached.append(line)
        self._post(ev.MasterAttached())
        yield pb.WorkerReport()
        try:
            while (report := line.get()) is not None:
                yield report
        finally:
            with self._lock:
                self._attached.remove(line)

    def tell_masters(self, report: pb.WorkerReport) -> None:
        """Send a report to every attached master."""
        with self._lock:
            lines = list(self._attached)
        for line in lines:
            line.put(report)

    def Inject(self, request: pb.InjectRequest, context: grpc.ServicerContext) -> pb.InjectReply:
        answered = threading.Event()
        reply = pb.InjectReply()

        def answer(moved: bool, accepted: int, duplicates: int, rejected: int) -> None:
            reply.moved, reply.accepted, reply.duplicates, reply.rejected = moved, accepted, duplicates, rejected
            answered.set()

        values, ids = [record.value for record in request.records], [record.id for record in request.records]
        self._post(ev.Injected(request.stream, request.target, values, ids, answer))
        if not answered.wait(_INJECT_TIMEOUT_S):
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "not durable yet; inject it again under the same ids")
        return reply


class GrpcTransport:
    """The Transport port: deliveries over our streams to peers, answers over their streams to us."""

    def __init__(self, post: Post, security: Security | None = None) -> None:
        self._post = post
        self._lines = PeerLines(self._on_frame, lambda address: post(ev.PeerLost(address)), security)
        self._answering: set[Connection] = set()

    def send(self, address: str, token: int, send: Send) -> None:
        delivery = pb.Delivery(
            channel=send.channel,
            node=send.node,
            target=send.target,
            target_token=token,
            epoch=send.epoch,
            index=send.index,
            batch=encode_batch(send.batch),
        )
        self._lines.deliver(address, delivery)

    def ack(self, route: object, channel: str, target: str, epoch: int, index: int) -> None:
        assert isinstance(route, Connection)
        route.building.acks.append(pb.Ack(channel=channel, target=target, epoch=epoch, index=index))
        self._answering.add(route)

    def refuse(self, route: object, channel: str, target: str, epoch: int, moved: bool) -> None:
        assert isinstance(route, Connection)
        reason = pb.Refusal.MOVED if moved else pb.Refusal.RESTART
        route.building.refusals.append(pb.Refusal(channel=channel, target=target, epoch=epoch, reason=reason))
        self._answering.add(route)

    def flush(self) -> None:
        self._lines.flush()
        for route in self._answering:
            route.frames.put(route.building)
            route.building = pb.Frame()
        self._answering.clear()

    def close(self) -> None:
        """End the streams to peers."""
        self._lines.close()

    def _on_frame(self, frame: pb.Frame) -> None:
        for ack in frame.acks:
            self._post(ev.AckCame(ack.channel, ack.target, ack.epoch, ack.index))
        for refusal in frame.refusals:
            moved = refusal.reason == pb.Refusal.MOVED
            self._post(ev.RefusalCame(refusal.channel, refusal.target, refusal.epoch, moved))


class MasterReports:
    """The MasterLine port over the attached streams. Releases are repeated until the table has changed."""

    def __init__(self, service: WorkerService) -> None:
        self._service = service

    def released(self, shard: str, token: int, last_commit: int) -> None:
        released = pb.Released(shard=shard, token=token, last_commit=last_commit)
        self._service.tell_masters(pb.WorkerReport(released=[released]))

    def load(self, loads: Sequence[ShardWork]) -> None:
        rows = [
            pb.ShardLoad(shard=w.shard, token=w.token, records=w.records, busy_us=w.busy_us, sample=w.sample)
            for w in loads
        ]
        self._service.tell_masters(pb.WorkerReport(loads=rows))


def serve(service: WorkerService, listen: str, security: Security | None = None) -> tuple[grpc.Server, str]:
    """A started server and its address."""
    server, address = new_server(_MAX_THREADS, listen, security)
    add_WorkerServicer_to_server(service, server)
    server.start()
    return server, address
