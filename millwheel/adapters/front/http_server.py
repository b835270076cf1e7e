"""The HTTP server of pages, the gateway and the HTTP source: uvicorn behind the front.

uvicorn has no deadline for a first request, a head, a body or an answer, and its parser in C no
bound for a head. So connections come from the front, which has them, and the protocol classes count
what does not become a request.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.listener import Front
from millwheel.adapters.front.visitors import Visitor, VisitPhase
from millwheel.adapters.front.visits import VISITOR, Visits

_PIPELINED = 16  # requests that a client may send before the first is answered; browsers send one


class _Visited:
    """A connection of uvicorn that tells the front when it waits for the next request, and when it
    is over."""

    front: Front
    visitor: Visitor

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)  # type: ignore[misc]
        self.front.leave(self.visitor)

    def on_response_complete(self) -> None:
        self.front.advance(self.visitor, VisitPhase.PAUSE)
        super().on_response_complete()  # type: ignore[misc]


class _VisitedH11(_Visited, H11Protocol):
    """Of the parser in Python, which bounds heads itself."""


_protocol: type[Any] = _VisitedH11
try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    pass
else:

    class _VisitedTools(_Visited, HttpToolsProtocol):
        """Of the parser in C: bytes that become neither a head nor a part of a body are counted
        here."""

        _unparsed = 0

        def data_received(self, data: bytes) -> None:
            self._unparsed += len(data)
            super().data_received(data)
            if self._unparsed > self.front.limits.head_bytes and not self.transport.is_closing():
                self.send_400_response(f"A head has {self.front.limits.head_bytes} bytes at most.")

        def on_headers_complete(self) -> None:
            self._unparsed = 0
            if len(self.pipeline) >= _PIPELINED:
                # uvicorn answers with 400
                raise ValueError("too many requests before the first is answered")
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._unparsed = 0
            super().on_body(body)

    _protocol = _VisitedTools


class FrontedServer(uvicorn.Server):
    """Serves ``app`` on the socket ``bound``, which it owns. ``probes`` are paths of health checks.
    ``renews`` is called with the TLS context, if there is one, and may change its certificates
    later. ``settings`` are those of :class:`uvicorn.Config`."""

    def __init__(
        self,
        app: ASGIApp,
        bound: socket.socket,
        limits: FrontLimits,
        probes: Collection[str] = (),
        renews: Callable[[ssl.SSLContext], None] | None = None,
        **settings: Any,
    ) -> None:
        self._renews = renews
        self._front = Front(bound, limits, self._spoke, "http")
        self._taking: set[asyncio.Task[None]] = set()
        config = uvicorn.Config(
            Visits(app, self._front, probes),
            http=_protocol,
            ws="none",
            log_level="error",  # strangers cause any number of warnings
            h11_max_incomplete_event_size=limits.head_bytes,
            **settings,
        )
        super().__init__(config)

    def serve_on_this_thread(self) -> None:
        """Serve until Ctrl-C."""
        try:
            self.run()
        finally:
            self._front.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections once the application has started."""
        await super().startup(sockets=[])
        if self._renews is not None and self.config.ssl is not None:
            self._renews(self.config.ssl)
        self._loop = asyncio.get_running_loop()
        self._front.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and let requests end."""
        self._front.close()
        await super().shutdown(sockets=[])

    def _spoke(self, connection: socket.socket, visitor: Visitor) -> None:
        self._loop.call_soon_threadsafe(self._take, connection, visitor)

    def _take(self, connection: socket.socket, visitor: Visitor) -> None:
        task = self._loop.create_task(self._taken(connection, visitor))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _taken(self, connection: socket.socket, visitor: Visitor) -> None:
        handshake_s = self._front.limits.head_s if self.config.ssl else None
        try:
            connection.setblocking(False)
            await self._loop.connect_accepted_socket(
                lambda: self._made(visitor),
                connection,
                ssl=self.config.ssl,
                ssl_handshake_timeout=handshake_s,
            )
        except OSError:  # no TLS, or the client has gone
            connection.close()
            self._front.leave(visitor)

    def _made(self, visitor: Visitor) -> asyncio.Protocol:
        state = {**self.lifespan.state, VISITOR: visitor}
        made: Any = _protocol(config=self.config, server_state=self.server_state, app_state=state)
        made.front, made.visitor = self._front, visitor
        protocol: asyncio.Protocol = made
        return protocol
