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
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from time import monotonic
from typing import Any

from millwheel.errors import SetupError
from millwheel.queries.asked import AskedQueries, Found
from millwheel.queries.clients.connection import Connection, Slot, failed_reply
from millwheel.queries.commands import QueryService, Session
from millwheel.queries.model import Query, QueryError
from millwheel.queries.peers.asking import Asking, Workers, command_of
from millwheel.queries.peers.link import Links
from millwheel.queries.rendering import Gather, answer_of
from millwheel.queries.resp import hiredis_reader

GATHER_S = 1.0
"""The timeout for other workers' parts of a formula (s). After it the question is refused, and may be asked again."""
LEASE_S = 0.05
"""How long a check of the seal stays valid (s)."""
MAX_CONNECTIONS = 10_000
"""The most connections to one worker."""
_BACKLOG = 511  # as Redis has
_log = logging.getLogger("millwheel.queries")
_FENCED = QueryError("unavailable", "this worker was replaced: another one has its shards; ask again")


_Job = tuple[Connection, Slot, int]


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
        hiredis_reader()
        self._clock_us = service.now_us
        self._now_us: int | None = None
        self.service = replace(service, now_us=self._now)
        self._post = post
        self._check = check
        self._tls = tls
        self._socket = _bound(listen)
        self.address = f"{listen.rpartition(':')[0]}:{self._socket.getsockname()[1]}"
        self._connections: set[Connection] = set()
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
            lambda: Connection(self, Session(self.service)), sock=self._socket, ssl=self._tls, backlog=_BACKLOG
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
                connection.abort()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    def opened(self, connection: Connection) -> bool:
        """Register a new connection; False when there are too many."""
        self._connections.add(connection)
        return len(self._connections) <= MAX_CONNECTIONS

    def closed(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._connections.discard(connection)

    def ask(self, connection: Connection, slot: Slot, queries: Sequence[Query]) -> None:
        """Add the queries of a command to the batch of this iteration of the loop."""
        if not self._jobs:
            self._loop.call_soon(self._send)
        self._jobs.append((connection, slot, len(queries)))
        self._queries.extend(queries)

    def gather(self, connection: Connection, slot: Slot, request: Gather) -> None:
        """Ask other workers for their parts of a reply."""
        task = self._loop.create_task(self._gathered(connection, slot, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _gathered(self, connection: Connection, slot: Slot, request: Gather) -> None:
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
        told: dict[Connection, None] = {}
        for jobs, found in waves:
            start = 0
            for connection, slot, size in jobs:
                connection.answered(slot, found[start : start + size])
                told[connection] = None
                start += size
        for connection in told:
            connection.go_on()


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
