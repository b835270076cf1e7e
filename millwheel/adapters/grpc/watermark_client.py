"""A worker's line to the watermark service: reports out, watermarks and known tokens in, for ever.

One thread keeps the line: it looks the leader up, connects, and listens; gRPC's own thread of the
stream sends. The newest report of each shard is remembered, and all of them are sent again on every
new connection, so that an injector that starts from nothing has its tiling complete as soon as
every worker has found it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import grpc

from millwheel.adapters.grpc.channels import CALL_TIMEOUT_S, new_channel
from millwheel.adapters.grpc.node_reports import NodeReports
from millwheel.adapters.grpc.security import Security
from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.adapters.pb.injector_pb2_grpc import InjectorStub
from millwheel.core.model.failures import CallKind, Tally
from millwheel.core.model.names import NodeName
from millwheel.core.model.watermark import ShardReport, Watermarks
from millwheel.errors import UnavailableError

_FRAME_BYTES = 2**20  # a message of reports is sent once it is this large


class ReportQueue:
    """For one thread at a time."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeReports] = {}

    def node(self, name: str) -> NodeReports:
        """The reports of the shards of one node."""
        if name not in self._nodes:
            self._nodes[name] = NodeReports(name)
        return self._nodes[name]

    def put(self, node: str, reports: Sequence[ShardReport]) -> None:
        """A newer report of a shard replaces one that was not sent yet; one under an older token is
        dropped."""
        self.node(node).put(reports)

    def forget(self, shard: str) -> None:
        """The shard left this worker: it is not reported again."""
        for node in self._nodes.values():
            node.forget(shard)

    def begin(self) -> None:
        """A new session, in which everything is to be sent again."""
        for node in self._nodes.values():
            node.begin()

    def waiting(self) -> bool:
        """True when :meth:`take` has something to send."""
        return any(node.waiting() for node in self._nodes.values())

    def take(self) -> list[pb.ReportFrame]:
        """All unsent reports, to be sent in this order and in this session: usually one message."""
        frames: list[list[pb.Reports]] = []
        size = _FRAME_BYTES
        for part in (part for node in self._nodes.values() for part in node.take()):
            if size >= _FRAME_BYTES:
                frames.append([])
                size = 0
            frames[-1].append(part)
            size += part.ByteSize()
        return [pb.ReportFrame(nodes=parts) for parts in frames]


_SEND_EVERY_S = 0.005  # reports of all shards go together at most this often
_BACK_OFF_S = (0.02, 1.0)  # first and longest pause before the service is called again


class StatusLine:
    """Asks the injector at ``address``, again and again over one channel: with TLS, a new one for
    each question takes both sides several milliseconds."""

    def __init__(self, address: str, security: Security | None = None) -> None:
        self.address = address
        self._channel = new_channel(address, security)
        self._stub = InjectorStub(self._channel)

    def ask(self, timeout_s: float = CALL_TIMEOUT_S) -> pb.StatusReply:
        """Where the watermarks stand. Raises UnavailableError when it does not answer."""
        try:
            return self._stub.Status(pb.StatusRequest(), timeout=timeout_s)
        except grpc.RpcError as ex:
            raise UnavailableError(
                f"the injector at {self.address} did not answer: {_words(ex)}"
            ) from ex

    def close(self) -> None:
        """Ask no more."""
        self._channel.close()


def fetch_status(
    address: str, timeout_s: float = CALL_TIMEOUT_S, security: Security | None = None
) -> pb.StatusReply:
    """Where the watermarks stand, asked once. Raises UnavailableError when the injector does not
    answer."""
    with closing(StatusLine(address, security)) as line:
        return line.ask(timeout_s)


def _words(error: grpc.RpcError) -> str:
    return str(error.details() or error.code()) if isinstance(error, grpc.Call) else str(error)


class _SharedReports:
    """A :class:`ReportQueue` for threads: the loop puts reports on it, gRPC's thread of the stream
    takes frames."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reports = ReportQueue()
        self._session = 0

    def put(self, by_node: Mapping[NodeName, Sequence[ShardReport]]) -> None:
        with self._changed:
            for node, reports in by_node.items():
                self._reports.put(node, reports)
            self._changed.notify_all()

    def forget(self, shard: str) -> None:
        with self._changed:
            self._reports.forget(shard)

    def open(self) -> int:
        """A new session, in which everything is to be sent again."""
        with self._changed:
            self._session += 1
            self._reports.begin()
            return self._session

    def end(self) -> None:
        """No session: :meth:`frames` of the one before ends."""
        with self._changed:
            self._session += 1
            self._changed.notify_all()

    def frames(self, session: int) -> Iterator[pb.ReportFrame]:
        """The frames to send in ``session``, while it lasts. A pause between frames lets the next
        one carry more."""
        while (frames := self._next(session)) is not None:
            yield from frames
            with self._changed:
                self._changed.wait_for(lambda: self._session != session, timeout=_SEND_EVERY_S)

    def _next(self, session: int) -> list[pb.ReportFrame] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._reports.waiting() or self._session != session)
            return self._reports.take() if self._session == session else None


def read_tallies(message: pb.Broadcast) -> dict[str, dict[CallKind, Tally]]:
    """Tallies of calls by node, from a message."""
    tallies: dict[str, dict[CallKind, Tally]] = {}
    for each in message.tallies:
        tallies.setdefault(each.node, {})[CallKind(each.judged, each.what)] = Tally(
            each.tried, each.failed
        )
    return tallies


class InjectorClient:
    """Sends reports of this worker's shards, and receives the broadcasts of the service.

    ``find_address`` returns the leader's address (None: there is no leader) and is called on the
    client's thread before each attempt; it may block shortly. ``on_watermarks`` gets the nodes
    whose published watermark (µs) rose, ``on_token_reported`` (shard, token) once a first report
    has arrived: from then on its owner may ack deliveries. ``on_tallies`` gets the results of calls
    of nodes, over all of their shards. All are called on the client's thread, must only enqueue,
    and may repeat news of another connection.
    """

    def __init__(
        self,
        find_address: Callable[[], str | None],
        on_watermarks: Callable[[dict[str, int]], None],
        on_token_reported: Callable[[str, int], None],
        security: Security | None = None,
        on_tallies: Callable[[dict[str, dict[CallKind, Tally]]], None] = lambda tallies: None,
    ) -> None:
        self._security = security
        self._find_address = find_address
        self._on_watermarks = on_watermarks
        self._on_token_reported = on_token_reported
        self._on_tallies = on_tallies
        self._reports = _SharedReports()
        self._watermarks = Watermarks()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._address: str | None = None
        self._call: grpc.Call | None = None
        self._thread = threading.Thread(target=self._run, name="injector-client", daemon=True)
        self._thread.start()

    def report(self, by_node: Mapping[NodeName, Sequence[ShardReport]]) -> None:
        """Send these when the line is free; a newer report of a shard replaces one that was not
        sent yet."""
        self._reports.put(by_node)

    def forget(self, shard: str) -> None:
        """The shard left this worker: do not report it again."""
        self._reports.forget(shard)

    def leader_changed(self) -> None:
        """Look the leader up now. Ends a pause between attempts, and a connection to a former
        leader."""
        self._wake.set()
        with self._lock:
            call, address = self._call, self._address
        if call is not None and self._find_address() != address:
            call.cancel()

    def status(self, timeout_s: float = CALL_TIMEOUT_S) -> pb.StatusReply:
        """Where the watermarks stand. Raises UnavailableError without a leader, or an answer."""
        address = self._find_address()
        if address is None:
            raise UnavailableError(
                "no injector leads at the moment; it is elected within seconds, ask again"
            )
        return fetch_status(address, timeout_s, self._security)

    def close(self) -> None:
        """Drop the line; reports not sent yet are lost."""
        with self._lock:
            self._closed = True
            call = self._call
        self._wake.set()
        self._reports.end()
        if call is not None:
            call.cancel()
        self._thread.join()

    def _run(self) -> None:
        shortest, longest = _BACK_OFF_S
        pause_s = shortest
        while not self._closed:
            address = self._find_address()
            served = address is not None and self._serve(address)
            pause_s = shortest if served else min(2 * pause_s, longest)
            if not self._closed and self._wake.wait(pause_s * random.uniform(0.5, 1.0)):
                self._wake.clear()
                pause_s = shortest

    def _serve(self, address: str) -> bool:
        """Hold one connection until it breaks; whether the service ever answered on it."""
        served = False
        with new_channel(address, self._security) as channel:
            call = InjectorStub(channel).Connect(self._reports.frames(self._reports.open()))
            if self._hold(call, address):
                try:
                    for message in call:
                        served = True
                        self._receive(message)
                except grpc.RpcError:
                    pass  # any failure is handled alike: look the leader up and connect again
            self._hold(None, None)
            self._reports.end()
        return served

    def _hold(self, call: grpc.Call | None, address: str | None) -> bool:
        """Let other threads cancel ``call``; False when the client was closed before."""
        with self._lock:
            self._call, self._address = call, address
            return not self._closed

    def _receive(self, message: pb.Broadcast) -> None:
        risen = self._watermarks.rise({mark.node: mark.watermark_us for mark in message.watermarks})
        if risen:
            self._on_watermarks(risen)
        for notice in message.known:
            self._on_token_reported(notice.shard, notice.token)
        if message.tallies:
            self._on_tallies(read_tallies(message))
