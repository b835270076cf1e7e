"""The server of the Redis protocol in a worker: a thread with a loop of its own, which parses, asks and replies.

All queries that arrive in one iteration of this loop, over all connections, form one batch for the worker's loop: one
event, one wake-up, and one moment that is now. An answer is sent only after a check of the journal's seal that began
after the answer was computed, or at most :data:`LEASE_S` earlier: a worker that was paused and declared dead must not
answer as if it still owned the shard.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from time import monotonic
from typing import Any

from millwheel.errors import SetupError
from millwheel.queries import resp
from millwheel.queries.asked import AskedQueries, Found
from millwheel.queries.commands import Gather, Pending, QueryService, Session
from millwheel.queries.model import Query, QueryError
from millwheel.queries.peers.asking import Asking, Workers, command_of
from millwheel.queries.peers.link import Links
from millwheel.queries.rendering import answer_of

GATHER_S = 1.0
"""The timeout for other workers' parts of a formula (s). After it the question is refused, and may be asked again."""
LEASE_S = 0.05
"""How long a check of the seal stays valid (s)."""
MAX_CONNECTIONS = 10_000
"""The most connections to one worker."""
MAX_WAITING = 20_000
"""The most unanswered queries of one connection: nothing more is read from it meanwhile."""
MAX_OUTPUT_BYTES = 16 << 20
"""The most bytes of replies that a client has not read: beyond that, its connection is closed."""
_BACKLOG = 511  # as Redis has
_log = logging.getLogger("millwheel.queries")
_FENCED = QueryError("unavailable", "this worker was replaced: another one has its shards; ask again")


class _Slot:
    """The position of a reply in the order of a connection's commands."""

    __slots__ = ("data", "pending")

    def __init__(self, data: bytes | None, pending: Pending | None = None) -> None:
        self.data = data
        self.pending = pending


class _Connection(asyncio.Protocol):
    def __init__(self, server: QueryServer) -> None:
        self._server = server
        self._session = Session(server.service)
        self._reader = resp.CommandReader()
        self._slots: deque[_Slot] = deque()
        self._waiting = 0
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if not self._server.opened(self):
            self._transport.write(resp.error("max number of clients reached"))
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self)
        self._slots.clear()

    def data_received(self, data: bytes) -> None:
        for command in self._reader.feed(data):
            if self._session.over:
                break
            if isinstance(command, resp.ProtocolError):
                self._slots.append(_Slot(resp.error(f"Protocol error: {command}")))
            else:
                self._execute(command)
        self._flush()

    def _execute(self, command: list[bytes]) -> None:
        reply = self._session.execute(command)
        if isinstance(reply, bytes):
            self._slots.append(_Slot(reply))
            return
        slot = _Slot(None, reply)
        self._slots.append(slot)
        self._waiting += len(reply.queries)
        if self._waiting > MAX_WAITING:
            self._transport.pause_reading()
        self._server.ask(self, slot, reply.queries)

    def answered(self, slot: _Slot, found: Sequence[Found]) -> None:
        """Take the outcomes of the queries of a command."""
        assert slot.pending is not None
        try:
            reply = slot.pending.reply(found)
        except Exception:
            reply = failed_reply()
        if isinstance(reply, Gather):
            self._server.gather(self, slot, reply)  # the command still counts as waiting
        else:
            self._complete(slot, reply)

    def gathered(self, slot: _Slot, reply: bytes) -> None:
        """Take the reply that includes the answers of other workers."""
        self._complete(slot, reply)
        self._flush()

    def _complete(self, slot: _Slot, reply: bytes) -> None:
        assert slot.pending is not None
        slot.data = reply
        before, self._waiting = self._waiting, self._waiting - len(slot.pending.queries)
        if before > MAX_WAITING >= self._waiting and not self._transport.is_closing():
            self._transport.resume_reading()

    def flush(self) -> None:
        """Write the replies that are complete and in order."""
        self._flush()

    def _flush(self) -> None:
        slots, out = self._slots, []
        while slots and slots[0].data is not None:
            out.append(slots.popleft().data)
        if out and not self._transport.is_closing():
            self._transport.write(b"".join(out))  # type: ignore[arg-type]
            if self._transport.get_write_buffer_size() > MAX_OUTPUT_BYTES:
                _log.warning("a client does not take its replies: its connection ends")
                self._transport.abort()
        if self._session.over and not slots:
            self._transport.close()


_Job = tuple[_Connection, _Slot, int]


class QueryServer:
    """Serves one worker. ``post`` passes a batch to the worker's loop, ``check`` reads the journal's seal and raises
    when this worker was replaced, ``links`` are the connections to other workers."""

    def __init__(
        self,
        listen: str,
        service: QueryService,
        post: Callable[[AskedQueries], None],
        check: Callable[[], None],
        tls: Any = None,
        links: Links | None = None,
    ) -> None:
        """Bind ``listen`` (host:port; port 0 takes a free one). Raises SetupError when it cannot be bound."""
        resp.hiredis_reader()
        self._clock_us = service.now_us
        self._now_us: int | None = None
        self.service = replace(service, now_us=self._now)
        self._post = post
        self._check = check
        self._tls = tls
        self._socket = _bound(listen)
        self.address = f"{listen.rpartition(':')[0]}:{self._socket.getsockname()[1]}"
        self._connections: set[_Connection] = set()
        self._jobs: list[_Job] = []
        self._queries: list[Query] = []
        self._waves: list[tuple[Sequence[_Job], Sequence[Found]]] = []
        self._checked_s = 0.0
        self._checking = False
        self._loop = _new_loop()
        self._workers = Workers(links or Links())
        self._tasks: set[asyncio.Task[None]] = set()

    def _now(self) -> int:
        """The moment of the batch that is being collected."""
        if self._now_us is None:
            self._now_us = self._clock_us()
            self._loop.call_soon(self._forget_now)
        return self._now_us

    def _forget_now(self) -> None:
        self._now_us = None

    def start(self) -> None:
        """Answer from now on, until the process ends."""
        threading.Thread(target=self._run, name="queries", daemon=True).start()

    def stop(self) -> None:
        """Stop answering (any thread)."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        serving = self._loop.create_server(
            lambda: _Connection(self), sock=self._socket, ssl=self._tls, backlog=_BACKLOG
        )
        server = self._loop.run_until_complete(serving)
        try:
            self._loop.run_forever()
        finally:
            server.close()
            self._workers.links.close()
            for task in self._tasks:
                task.cancel()
            for connection in list(self._connections):
                connection._transport.abort()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    def opened(self, connection: _Connection) -> bool:
        """Register a new connection; False when there are too many."""
        self._connections.add(connection)
        return len(self._connections) <= MAX_CONNECTIONS

    def closed(self, connection: _Connection) -> None:
        """Forget a closed connection."""
        self._connections.discard(connection)

    def ask(self, connection: _Connection, slot: _Slot, queries: Sequence[Query]) -> None:
        """Add the queries of a command to the batch of this iteration of the loop."""
        if not self._jobs:
            self._loop.call_soon(self._send)
        self._jobs.append((connection, slot, len(queries)))
        self._queries.extend(queries)

    def gather(self, connection: _Connection, slot: _Slot, request: Gather) -> None:
        """Ask other workers for their parts of a reply."""
        task = self._loop.create_task(self._gathered(connection, slot, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _gathered(self, connection: _Connection, slot: _Slot, request: Gather) -> None:
        try:
            reply = await self._asked_of_others(request)
        except Exception:  # otherwise this command and all behind it would never get a reply
            reply = failed_reply()
        connection.gathered(slot, reply)

    async def _asked_of_others(self, request: Gather) -> bytes:
        text = self.service.catalog.text
        asked = [
            Asking(command_of(each.query, text(each.query.computation, each.query.key)), each.owner, each.others)
            for each in request.questions
        ]
        await self._workers.ask(asked, GATHER_S)
        found = [answer_of(each.reply) if isinstance(each.reply, bytes) else each.reply for each in asked]
        return request.reply([each for each in found if each is not None])

    def _send(self) -> None:
        jobs, queries, self._jobs, self._queries = self._jobs, self._queries, [], []

        def reply(found: Sequence[Found]) -> None:
            try:
                self._loop.call_soon_threadsafe(self._answered, jobs, found)
            except RuntimeError:
                return  # the server has ended

        self._post(AskedQueries(queries, reply))

    def _answered(self, jobs: Sequence[_Job], found: Sequence[Found]) -> None:
        self._waves.append((jobs, found))
        if monotonic() - self._checked_s < LEASE_S:
            self._deliver()
        elif not self._checking:
            self._look()

    def _look(self) -> None:
        """Answers that are ready now are sent after this check."""
        self._checking = True
        began_s = monotonic()
        looking = self._loop.run_in_executor(None, self._check)
        looking.add_done_callback(lambda done: self._looked(began_s, done.exception()))

    def _looked(self, began_s: float, problem: BaseException | None) -> None:
        self._checking = False
        if problem is None:
            self._checked_s = began_s
        else:
            _log.warning("answers are refused: %s", problem)
            self._waves = [(jobs, [_FENCED] * len(found)) for jobs, found in self._waves]
        self._deliver()

    def _deliver(self) -> None:
        waves, self._waves = self._waves, []
        told: dict[_Connection, None] = {}
        for jobs, found in waves:
            start = 0
            for connection, slot, size in jobs:
                connection.answered(slot, found[start : start + size])
                told[connection] = None
                start += size
        for connection in told:
            connection.flush()


def failed_reply() -> bytes:
    """The reply to a command that failed through a defect in this server; logs the exception being handled."""
    _log.exception("a reply failed")
    return resp.error("the reply failed; the worker's log says why")


def _bound(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host.strip("[]"), int(port)))
        made.listen(_BACKLOG)  # now: a client that knows the address may connect before the thread accepts
    except OSError as ex:
        made.close()
        raise SetupError(f"Queries cannot be served at {listen}: {ex.strerror or ex}") from ex
    return made


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed: it takes half of the time for a read and a write."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
