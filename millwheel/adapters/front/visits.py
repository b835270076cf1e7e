"""The requests of a visitor, as an application sees them: its body, its answer, a stream without an
end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millwheel.adapters.front.listener import Front
from millwheel.adapters.front.visitors import Visitor, VisitPhase

VISITOR = "millwheel.visitor"
"""The key of a visitor in the state of a request."""
_STREAM = b"text/event-stream"


_BUSY = PlainTextResponse(
    "too many requests at a time; ask again\n", 503, {"retry-after": "1", "connection": "close"}
)


class Visits:
    """Says to the front how far each request of ``app`` is. A request for which there is no room is
    answered with 503; there is always room for ``probes``."""

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
    """What an application hears of a client, and says to it, on the way through the front."""

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
        """The next message of the client. If there is no room when its body is whole, it is
        refused, and has gone for the application."""
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
        """Send to the client. One that does not take a stream is hung up on: the application sees
        that it has gone."""
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
