"""The requests of a visitor, as an application sees them: its body, its answer, a stream without an end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millwheel.adapters.front.listening import Front
from millwheel.adapters.front.visitors import Visitor, VisitPhase

VISITOR = "millwheel.visitor"
"""The key of a visitor in the state of a request."""
_STREAM = b"text/event-stream"


class _FullError(Exception):
    """The body is complete, and there is no room for another answer."""


class Visits:
    """Says to the front how far each request of ``app`` is. A request for which there is no room is answered with 503;
    there is always room for ``probes``."""

    def __init__(self, app: ASGIApp, front: Front, probes: Collection[str] = ()) -> None:
        self._app = app
        self._front = front
        self._probes = frozenset(probes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor = scope.get("state", {}).pop(VISITOR, None)
        if scope["type"] != "http" or visitor is None:
            await self._app(scope, receive, send)
            return
        try:
            heard = self._heard(scope, receive, visitor)
            await self._app(scope, heard, self._taken(send, visitor))
        except _FullError:
            headers = {"retry-after": "1", "connection": "close"}
            busy = PlainTextResponse("too many requests at a time; ask again\n", 503, headers)
            await busy(scope, receive, send)

    def _heard(self, scope: Scope, receive: Receive, visitor: Visitor) -> Receive:
        """``receive``, which tells the front when the body is there. Raises _FullError if there is no body, and no
        room."""
        phase = VisitPhase.PROBE if scope["path"] in self._probes else VisitPhase.ANSWER
        if not _has_body(scope):
            self._answer(visitor, phase)
            return receive
        self._front.advance(visitor, VisitPhase.BODY)

        async def heard() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body") and visitor.phase is VisitPhase.BODY:
                self._answer(visitor, phase)
            return message

        return heard

    def _answer(self, visitor: Visitor, phase: VisitPhase) -> None:
        if not self._front.advance(visitor, phase):
            raise _FullError

    def _taken(self, send: Send, visitor: Visitor) -> Send:
        """``send``, which hangs up on a client that does not take a stream."""
        stall_s = self._front.limits.stall_s

        async def taken(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_stream(message):
                self._front.advance(visitor, VisitPhase.STREAM)
            if visitor.phase is not VisitPhase.STREAM:
                await send(message)
                return
            try:
                await asyncio.wait_for(send(message), stall_s)
            except (asyncio.TimeoutError, TimeoutError):  # two types in Python 3.10
                self._front.leave(visitor)
                visitor.hang_up()  # the application sees that its client is gone

        return taken


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _is_stream(message: Message) -> bool:
    return any(name == b"content-type" and value.startswith(_STREAM) for name, value in message["headers"])
