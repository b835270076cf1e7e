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
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.listener import Front
from millwheel.adapters.front.visitors import Visitor, VisitPhase

VISITOR = "millwheel.visitor"
"""The key of a visitor in the state of a request."""
_STREAM = b"text/event-stream"


_BUSY = PlainTextResponse(
    "too many requests at a time; ask again\n", 503, {"retry-after": "1", "connection": "close"}
)


class Visits:
    """Reports the phase of each request of ``app`` to the front. A request without room is answered
    with 503; there is always room for ``probes``."""

    def __init__(self, app: ASGIApp, front: Front, probes: Collection[str] = ()) -> None:
        self._app = app
        self._front = front
        self._probes = frozenset(probes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor = scope.get("state", {}).pop(VISITOR, None)
        if scope["type"] != "http" or visitor is None:
            await self._app(scope, receive, send)
            return
        phase = VisitPhase.PROBE if scope["path"] in self._probes else VisitPhase.ANSWER
        request = _Request(self._front, visitor, phase, receive, send)
        if not self._front.advance(visitor, VisitPhase.BODY if _has_body(scope) else phase):
            await _BUSY(scope, receive, send)
            return
        await self._app(scope, request.receive, request.send)


class _Request:
    """One request on its way through the front: its messages to and from the application."""

    def __init__(
        self, front: Front, visitor: Visitor, answer: VisitPhase, receive: Receive, send: Send
    ) -> None:
        self._front = front
        self._visitor = visitor
        self._answer = answer
        self._receive = receive
        self._send = send
        self._refused = False

    async def receive(self) -> Message:
        """The next message of the client. If there is no room once its body is complete, it is
        refused, and the application sees a client that has gone."""
        if self._refused:
            return {"type": "http.disconnect"}
        message = await self._receive()
        whole = message["type"] == "http.request" and not message.get("more_body")
        if (
            whole
            and self._visitor.phase is VisitPhase.BODY
            and not self._front.advance(self._visitor, self._answer)
        ):
            self._refused = True
            await _BUSY({"type": "http", "method": "POST"}, self._receive, self._send)
            return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        """Send to the client. A client that does not take a stream is hung up on, and the
        application sees that it has gone."""
        if self._refused:
            return
        if message["type"] == "http.response.start" and _is_stream(message):
            self._front.advance(self._visitor, VisitPhase.STREAM)
        if self._visitor.phase is not VisitPhase.STREAM:
            await self._send(message)
            return
        try:
            await asyncio.wait_for(self._send(message), self._front.limits.stall_s)
        except (asyncio.TimeoutError, TimeoutError):  # two types in Python 3.10
            self._front.leave(self._visitor)
            self._visitor.hang_up()


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _is_stream(message: Message) -> bool:
    return any(
        name == b"content-type" and value.startswith(_STREAM) for name, value in message["headers"]
    )


_PIPELINED = 16  # requests that a client may send before the first is answered; browsers send one


class _Visited:
    """A connection of uvicorn that reports to the front when it waits for the next request, and
    when it is over."""

    front: Front
    visitor: Visitor

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)  # type: ignore[misc]
        self.front.leave(self.visitor)

    def on_response_complete(self) -> None:
        self.front.advance(self.visitor, VisitPhase.PAUSE)
        super().on_response_complete()  # type: ignore[misc]


class _VisitedH11(_Visited, H11Protocol):
    """The connection with the parser in Python, which bounds heads itself."""


_protocol: type[Any] = _VisitedH11
try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    pass
else:

    class _VisitedTools(_Visited, HttpToolsProtocol):
        """The connection with the parser in C: bytes that become neither a head nor a part of a
        body are counted here."""

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
        self._front = Front(bound, limits, self._take_over, "http")
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

    def _take_over(self, connection: socket.socket, visitor: Visitor) -> None:
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
                lambda: self._protocol_of(visitor),
                connection,
                ssl=self.config.ssl,
                ssl_handshake_timeout=handshake_s,
            )
        except OSError:  # no TLS, or the client has gone
            connection.close()
            self._front.leave(visitor)

    def _protocol_of(self, visitor: Visitor) -> asyncio.Protocol:
        state = {**self.lifespan.state, VISITOR: visitor}
        connection: Any = _protocol(
            config=self.config, server_state=self.server_state, app_state=state
        )
        connection.front, connection.visitor = self._front, visitor
        protocol: asyncio.Protocol = connection
        return protocol
