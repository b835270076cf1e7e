"""The shell of the watermark service: gRPC streams in, one thread that steps the runtime, streams
out.

The threads of gRPC and of the coordination adapter only enqueue; ``runtime.py`` does the rest.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future

import grpc

from millwheel.adapters.grpc.channels import CALL_TIMEOUT_S, new_server
from millwheel.adapters.grpc.security import Security
from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.adapters.pb.injector_pb2_grpc import InjectorServicer, add_InjectorServicer_to_server
from millwheel.control.injector.client_queue import ClientQueue
from millwheel.control.injector.events import Disconnected, Event, RangesChanged
from millwheel.control.injector.runtime import InjectorRuntime
from millwheel.control.injector.wire import read_frame, write_status
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.times import MAX_TIME
from millwheel.errors import InvariantError

_MAX_CONNECTIONS = 1_000  # workers and commands at once, a thread for each
_GRACE_S = 0.5  # for calls to end when the service stops


class _Stop:
    """The last item of the queue."""


_Item = Sequence[Event] | Future[pb.StatusReply] | _Stop


class Loop:
    """The thread of the service. It steps the runtime when there are events, or when it is time to
    publish."""

    def __init__(self) -> None:
        self._runtime = InjectorRuntime()
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._wake_us = MAX_TIME

    def put(self, item: _Item) -> None:
        """Enqueue events that arrived together, or a question. Never blocks."""
        self._queue.put(item)

    def connect(self, connection: int, outbox: ClientQueue) -> None:
        """Serve a connection from now on."""
        self.put([self._runtime.connect(connection, outbox)])

    def disconnect(self, connection: int) -> None:
        """Forget a connection. The reports of its shards stay."""
        self._runtime.disconnect(connection)

    def run(self) -> None:
        """Run until :meth:`stop`, then end every stream."""
        while not isinstance(item := self._take(), _Stop):
            if isinstance(item, Future):
                item.set_result(write_status(self._runtime.state))
            else:
                self._wake_us = self._runtime.step(item or (), _now_us())
        self._runtime.close()

    def stop(self) -> None:
        """End :meth:`run` after the items that are already queued."""
        self.put(_Stop())

    def _take(self) -> _Item | None:
        """The next item; None when it is time for a step without one."""
        if self._wake_us == MAX_TIME:
            return self._queue.get()
        try:
            return self._queue.get(timeout=max(0.0, (self._wake_us - _now_us()) / 1e6))
        except queue.Empty:
            return None


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class _Service(InjectorServicer):
    def __init__(self, loop: Loop, leading: threading.Event) -> None:
        self._loop = loop
        self._leading = leading
        self._connections = itertools.count(1)

    def Connect(
        self, request_iterator: Iterable[pb.ReportFrame], context: grpc.ServicerContext
    ) -> Iterator[pb.Broadcast]:
        self._refuse_standby(context)
        connection, outbox = next(self._connections), ClientQueue()
        self._loop.connect(connection, outbox)
        if not context.add_callback(lambda: self._loop.disconnect(connection)):
            self._loop.disconnect(connection)  # it ended before the callback was registered
        reader = threading.Thread(
            target=self._read,
            args=(connection, outbox, request_iterator),
            name=f"reports-{connection}",
            daemon=True,
        )
        reader.start()
        yield from outbox.messages()

    def Status(self, request: pb.StatusRequest, context: grpc.ServicerContext) -> pb.StatusReply:
        self._refuse_standby(context)
        answer: Future[pb.StatusReply] = Future()
        self._loop.put(answer)
        return answer.result(CALL_TIMEOUT_S)

    def _read(self, connection: int, outbox: ClientQueue, frames: Iterable[pb.ReportFrame]) -> None:
        try:
            for frame in frames:
                self._loop.put(list(read_frame(connection, frame)))
        except (grpc.RpcError, ValueError, InvariantError):
            # the stream broke, or its sender uses another protocol: end it, the worker connects
            # again
            pass
        finally:
            self._loop.put([Disconnected(connection)])
            outbox.close()

    def _refuse_standby(self, context: grpc.ServicerContext) -> None:
        if not self._leading.is_set():
            context.abort(grpc.StatusCode.UNAVAILABLE, "this injector stands by; another one leads")


class InjectorServer:
    """The service on one address. It refuses to serve until :meth:`lead`."""

    def __init__(self, listen: str = "127.0.0.1:0", security: Security | None = None) -> None:
        """Bind ``listen``. Raises SetupError if the port is not available."""
        self._loop = Loop()
        self._leading = threading.Event()
        self._server, self.address = new_server(_MAX_CONNECTIONS, listen, security)
        add_InjectorServicer_to_server(_Service(self._loop, self._leading), self._server)
        self._thread = threading.Thread(target=self._loop.run, name="injector", daemon=True)

    def start(self) -> None:
        """Listen, as a stand-by."""
        self._thread.start()
        self._server.start()

    def table_changed(self, table: RangeTable) -> None:
        """A range table as the coordination adapter reports it; only enqueues."""
        self._loop.put([RangesChanged(table)])

    def lead(self, tables: Iterable[RangeTable]) -> None:
        """Serve from now on. ``tables`` are all range tables, read after the election was won:
        without their tokens a zombie's reports would count."""
        for table in tables:
            self.table_changed(table)
        self._leading.set()

    def status(self) -> pb.StatusReply:
        """Where the nodes stand (any thread but the loop's)."""
        answer: Future[pb.StatusReply] = Future()
        self._loop.put(answer)
        return answer.result(CALL_TIMEOUT_S)

    def stop(self) -> None:
        """End every stream and stop listening."""
        self._leading.clear()
        self._loop.stop()
        if self._thread.is_alive():
            self._thread.join()
        self._server.stop(_GRACE_S).wait()
