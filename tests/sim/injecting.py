"""Programs that inject records: the real client of other programs and the real face of a worker,
with a simulated network, clock and pool of threads between and below them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import greenlet
import grpc

from millwheel.adapters.grpc import injection_client
from millwheel.adapters.grpc.injection_client import InjectionClient, InjectionResult, OutsideRecord
from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.control.roots import attach
from millwheel.engine.workers import server
from millwheel.engine.workers.server import WorkerService
from millwheel.errors import UnavailableError
from millwheel.tools.client import inject as inject_module
from millwheel.tools.client.inject import Injecting
from millwheel.tools.client.injector import follow
from tests.sim.kernel import SECOND
from tests.sim.network import Connection
from tests.sim.process import Mailbox, Process
from tests.sim.replacing import replaced

if TYPE_CHECKING:
    from tests.sim.worker import SimWorker
    from tests.sim.world import World

_THREAD_US = (0, 3_000)
"""Until a thread of a worker begins with a call: calls of one connection overtake each other."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How long a worker and a client wait for records to become durable, how many requests may wait
    in a worker, and how many records are in one."""

    worker_s: float = 30.0
    client_s: float = 35.0
    waiting: int = 224
    records: int = 2_000


@contextmanager
def simulated(limits: CallLimits) -> Iterator[None]:
    """While it lasts, what client and worker wait with is simulated."""
    threads = SimpleNamespace(
        Event=SimEvent, Lock=threading.Lock, BoundedSemaphore=threading.BoundedSemaphore
    )
    time = SimpleNamespace(monotonic=_monotonic, sleep=_sleep)
    with ExitStack() as stack:
        for owner, name, own in (
            (attach, "threading", threads),
            (server, "threading", threads),
            (server, "_MOST_INJECTIONS", limits.waiting),
            (server, "_INJECT_TIMEOUT_S", limits.worker_s),
            (inject_module, "time", time),
            (inject_module, "ThreadPoolExecutor", SimPool),
            (inject_module, "BATCH_RECORDS", limits.records),
            (injection_client, "new_channel", lambda address, _: SimChannel(address)),
            (injection_client, "WorkerStub", SimStub),
            (injection_client, "_TIMEOUT_S", limits.client_s),
        ):
            stack.enter_context(replaced(owner, name, own))
        yield


def _here() -> Any:
    """The process whose code this is."""
    task: Any = greenlet.getcurrent()
    return task.process


def _monotonic() -> float:
    now_us: int = _here().clock.monotonic_us()
    return now_us / SECOND


def _sleep(for_s: float) -> None:
    _here().sleep(int(for_s * SECOND))


class SimEvent:
    """``threading.Event`` between the tasks of a process."""

    def __init__(self) -> None:
        self._process: Process = _here()
        self._set = False
        self._waiting: list[Mailbox] = []

    def set(self) -> None:
        self._set = True
        for waiting in self._waiting:
            waiting.put(None)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout_s: float) -> bool:
        if not self._set:
            mine = Mailbox(self._process)
            self._waiting.append(mine)
            mine.take(1, int(timeout_s * SECOND))
            self._waiting.remove(mine)
        return self._set


class SimPool:
    """As ``ThreadPoolExecutor``: each call is a task of the process."""

    def __init__(self, threads: int, thread_name_prefix: str) -> None:
        self._process: Process = _here()

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        given, done = list(items), Mailbox(self._process)
        found: dict[int, Any] = {}

        def run(index: int, item: Any) -> None:
            try:
                found[index] = work(item)
            finally:
                done.put(index)

        for index, item in enumerate(given):
            self._process.spawn(lambda index=index, item=item: run(index, item))
        for _ in given:
            done.get()
        return (found[index] for index in range(len(given)))


class _Broken(grpc.RpcError):
    """A call without an answer."""


class _Aborted(Exception):
    """A worker refuses a call."""


class _Context:
    """What a worker gets with a call."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise _Aborted(f"{code.name}: {details}")


class SimChannel:
    """A client's channel to an address: a connection, and another one when that is broken."""

    def __init__(self, address: str) -> None:
        self._client: Sender = _here()
        self._server: SimWorker = self._client.world.workers[address]
        self._connection: Connection | None = None
        self._waiting: dict[int, Mailbox] = {}

    def call(self, request: pb.InjectRequest, timeout_s: float) -> pb.InjectReply:
        """The answer. Raises RpcError when there is none in time, or a refusal."""
        client = self._client
        number, mine = client.sim.number(), Mailbox(client)
        self._waiting[number] = mine
        self._connected().to_server((number, request.SerializeToString()))
        answers = mine.take(1, int(timeout_s * SECOND))
        self._waiting.pop(number, None)
        if not answers or not isinstance(answers[0], bytes):
            raise _Broken(answers[0] if answers else "no answer in time")
        return pb.InjectReply.FromString(answers[0])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.cut()

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.broken:
            client, worker = self._client, self._server
            made = client.world.network.connect(
                client, worker, lambda call: self._begin(made, *call), self._hear
            )
            made.on_broken = self._broken
            if not worker.alive:
                made.cut()
            self._connection = made
        return self._connection

    def _begin(self, connection: Connection, number: int, data: bytes) -> None:
        worker = self._server
        worker.later(
            worker.sim.delay(*_THREAD_US),
            lambda: worker.spawn(lambda: self._serve(connection, number, data)),
        )

    def _serve(self, connection: Connection, number: int, data: bytes) -> None:
        context: Any = _Context()
        answer: bytes | str
        try:
            reply = self._client.face(self._server).Inject(
                pb.InjectRequest.FromString(data), context
            )
            answer = reply.SerializeToString()
        except _Aborted as ex:
            answer = str(ex)
        connection.to_client((number, answer))

    def _hear(self, message: tuple[int, bytes | str]) -> None:
        number, answer = message
        if number in self._waiting:
            self._waiting[number].put(answer)

    def _broken(self) -> None:
        for waiting in self._waiting.values():
            waiting.put("the connection is broken")


class SimStub:
    """The one call of ``WorkerStub`` that clients make."""

    def __init__(self, channel: SimChannel) -> None:
        self._channel = channel

    def Inject(self, request: pb.InjectRequest, timeout: float) -> pb.InjectReply:
        return self._channel.call(request, timeout)


Told = Callable[[Sequence[OutsideRecord], InjectionResult], None]


class _TellingClient:
    """The real client; what its caller is told goes to ``told`` as well."""

    def __init__(self, told: Told) -> None:
        self._client, self._told = InjectionClient(), told

    def inject(
        self, address: str, stream: str, shard: str, records: Sequence[OutsideRecord]
    ) -> InjectionResult:
        found = self._client.inject(address, stream, shard, records)
        self._told(records, found)
        return found


class Sender(Process):
    """One life of a program that injects records. ``tasks`` are what its threads do with the real
    client; it ends with the last of them."""

    def __init__(
        self,
        world: World,
        place: str,
        faces: dict[str, WorkerService],
        told: Told,
        tasks: Sequence[Callable[[Sender, Injecting], None]],
        stream: str,
        patience_s: float,
    ) -> None:
        super().__init__(world.sim, f"{place}-{world.sim.number()}")
        self.world = world
        self._faces, self._told, self._threads = faces, told, tasks
        self._stream, self._patience_s = stream, patience_s
        self._left = len(tasks)
        self.session = world.zookeeper.connect(self)
        self.session.on_lost(self.end)
        world.admit(self)
        self.spawn(self._main)

    def face(self, worker: SimWorker) -> WorkerService:
        """What a worker answers calls with."""
        return self._faces.setdefault(worker.name, WorkerService(worker.post))

    def _main(self) -> None:
        try:
            look = follow(self.session, self._stream)
            sending = Injecting(self._stream, _TellingClient(self._told), look, self._patience_s)
        except UnavailableError:  # it is started again
            self.end()
            return
        for task in self._threads:
            self.spawn(lambda task=task: self._work(task, sending))

    def _work(self, task: Callable[[Sender, Injecting], None], sending: Injecting) -> None:
        task(self, sending)
        self._left -= 1
        if not self._left:
            self.session.close()
            self.end()
