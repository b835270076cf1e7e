"""The server of the Redis protocol in a worker: a thread with a loop of its own, which parses, asks
and replies.

All queries that arrive in one iteration of this loop, over all connections, form one batch for the
worker's loop: one event, one wake-up, and one moment that is now. An answer is sent only after a
check of the journal's seal that began after the answer was computed, or at most :data:`LEASE_S`
earlier: a worker that was paused and declared dead must not answer as if it still owned the shard.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from importlib import import_module
from time import monotonic
from typing import Any

from millwheel.adapters.front import limits as front_limits
from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.listener import Front, listening
from millwheel.adapters.front.visitors import Visitor, VisitPhase
from millwheel.engine.queries.commands import QueryService, Session
from millwheel.engine.queries.connection import Connection, Slot, failed_reply
from millwheel.engine.queries.link import Links
from millwheel.engine.queries.model import AskedQueries, Found, Query, QueryError
from millwheel.engine.queries.peer_client import Asking, Workers, command_of
from millwheel.engine.queries.replies import Gather, answer_of
from millwheel.engine.queries.resp import hiredis_reader

GATHER_S = 1.0
"""The timeout for other workers' parts of a formula (s). After it the question is refused, and may
be asked again."""
LEASE_S = 0.05
"""How long a check of the seal stays valid (s)."""
_log = logging.getLogger("millwheel.queries")
_FENCED = QueryError(
    "unavailable", "this worker was replaced: another one has its shards; ask again"
)


_Job = tuple[Connection, Slot, int]


class QueryServer:
    """Serves one worker. ``post`` passes a batch to the worker's loop, ``check`` reads the
    journal's seal and raises when this worker was replaced, ``links`` are the connections to other
    workers."""

    def __init__(
        self,
        listen: str,
        service: QueryService,
        post: Callable[[AskedQueries], None],
        check: Callable[[], None],
        tls: Any = None,
        links: Links | None = None,
        limits: FrontLimits | None = None,
    ) -> None:
        """Bind ``listen`` (host:port; port 0 takes a free one). Raises SetupError when it cannot be
        bound."""
        hiredis_reader()
        self._clock_us = service.now_us
        self._now_us: int | None = None
        self.service = replace(service, now_us=self._now)
        self._post = post
        self._check = check
        self._tls = tls
        bound = listening(listen, "Queries cannot be served at")
        self.address = f"{listen.rpartition(':')[0]}:{bound.getsockname()[1]}"
        self._front = Front(bound, limits or front_limits.queries(), self._accept, "queries")
        self._visitors: dict[Connection, Visitor] = {}
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
        self._front.start()
        try:
            self._loop.run_forever()
        finally:
            self._front.close()
            self._workers.links.close()
            for task in self._tasks:
                task.cancel()
            for connection in list(self._visitors):
                connection.abort()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    def _accept(self, client: socket.socket, visitor: Visitor) -> None:
        self._loop.call_soon_threadsafe(lambda: self._task(self._taken(client, visitor)))

    async def _taken(self, client: socket.socket, visitor: Visitor) -> None:
        handshake_s = self._front.limits.head_s if self._tls else None
        connection = Connection(self, Session(self.service))
        self._visitors[connection] = visitor
        try:
            client.setblocking(False)
            await self._loop.connect_accepted_socket(
                lambda: connection, client, ssl=self._tls, ssl_handshake_timeout=handshake_s
            )
        except OSError:  # no TLS, or the client has gone
            client.close()
            self.closed(connection)

    def admits(self, connection: Connection) -> bool:
        """Whether there is room for a client that has sent its first command, with the token if one
        is required."""
        return self._front.advance(self._visitors[connection], VisitPhase.ADMITTED)

    def closed(self, connection: Connection) -> None:
        """Forget a closed connection."""
        visitor = self._visitors.pop(connection, None)
        if visitor is not None:
            self._front.leave(visitor)

    def ask(self, connection: Connection, slot: Slot, queries: Sequence[Query]) -> None:
        """Add the queries of a command to the batch of this iteration of the loop."""
        if not self._jobs:
            self._loop.call_soon(self._send)
        self._jobs.append((connection, slot, len(queries)))
        self._queries.extend(queries)

    def gather(self, connection: Connection, slot: Slot, request: Gather) -> None:
        """Ask other workers for their parts of a reply."""
        self._task(self._gathered(connection, slot, request))

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
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
        questions = [
            Asking(
                command_of(each.query, text(each.query.computation, each.query.key)),
                each.owner,
                each.others,
            )
            for each in request.questions
        ]
        await self._workers.ask(questions, GATHER_S)
        replies = [
            answer_of(each.reply) if isinstance(each.reply, bytes) else each.reply
            for each in questions
        ]
        return request.reply([each for each in replies if each is not None])

    def _send(self) -> None:
        jobs, queries, self._jobs, self._queries = self._jobs, self._queries, [], []

        def reply(outcomes: Sequence[Found]) -> None:
            try:
                self._loop.call_soon_threadsafe(self._answered, jobs, outcomes)
            except RuntimeError:
                return  # the server has ended

        self._post(AskedQueries(queries, reply))

    def _answered(self, jobs: Sequence[_Job], outcomes: Sequence[Found]) -> None:
        self._waves.append((jobs, outcomes))
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
            self._waves = [(jobs, [_FENCED] * len(outcomes)) for jobs, outcomes in self._waves]
        self._deliver()

    def _deliver(self) -> None:
        waves, self._waves = self._waves, []
        connections: dict[Connection, None] = {}
        for jobs, outcomes in waves:
            start = 0
            for connection, slot, size in jobs:
                connection.answered(slot, outcomes[start : start + size])
                connections[connection] = None
                start += size
        for connection in connections:
            connection.go_on()


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed: it takes half of the time for a read and a write."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
