"""What the front is told about a request, without a network."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, StreamingResponse

from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.visitors import Visitor, Visitors, VisitPhase
from millwheel.adapters.front.visits import VISITOR, Visits


class Front:
    """What :class:`Visits` uses of a front."""

    def __init__(self, limits: FrontLimits) -> None:
        self.limits = limits
        self.visitors = Visitors(limits)
        self.phases: list[VisitPhase] = []

    def advance(self, visitor: Visitor, phase: VisitPhase) -> bool:
        done = self.visitors.advance(visitor, phase, 0)
        self.phases += [phase] if done else []
        return done

    def leave(self, visitor: Visitor) -> None:
        self.visitors.leave(visitor)


class Client:
    """One visitor that sends ``pieces`` of a body and takes answers, unless ``stalls``."""

    def __init__(self, front: Front, *pieces: bytes, stalls: bool = False) -> None:
        self.front, self.pieces, self.stalls = front, list(pieces), stalls
        self.hung_up = False
        self.visitor = Visitor("127.0.0.1", self._hang_up)
        front.visitors.arrive(self.visitor, 0)
        self.sent: list[Any] = []

    def _hang_up(self) -> None:
        self.hung_up = True

    async def ask(self, path: str = "/") -> int:
        headers = [(b"transfer-encoding", b"chunked")] if self.pieces else []
        state = {VISITOR: self.visitor}
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "state": state}
        await Visits(_app, self.front, ["/healthz"])(scope, self._receive, self._send)  # type: ignore[arg-type]
        assert not state
        status: int = self.sent[0]["status"]
        return status

    async def _receive(self) -> Any:
        if not self.pieces:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": self.pieces.pop(0), "more_body": bool(self.pieces)}

    async def _send(self, message: Any) -> None:
        if self.stalls and not self.hung_up and message["type"] == "http.response.body":
            await asyncio.sleep(0.2)
        self.sent.append(message)


async def _app(scope: Any, receive: Any, send: Any) -> None:
    async def news() -> Any:
        yield b"data: 1\n\n"

    if scope["path"] == "/events":
        await StreamingResponse(news(), media_type="text/event-stream")(scope, receive, send)
        return
    try:
        body = await Request(scope, receive).body() if scope["headers"] else b""
    except ClientDisconnect:
        body = b""
    await PlainTextResponse(f"{len(body)}")(scope, receive, send)


def test_a_request_with_a_body_is_a_stranger_until_it_is_whole() -> None:
    front = Front(FrontLimits())
    assert asyncio.run(Client(front, b"ab", b"c").ask()) == 200
    assert front.phases == [VisitPhase.BODY, VisitPhase.ANSWER]


def test_without_room_the_answer_is_503_and_probes_are_answered() -> None:
    front = Front(FrontLimits(most=1))
    assert front.advance(Client(front).visitor, VisitPhase.ADMITTED)
    assert asyncio.run(Client(front).ask()) == 503
    assert asyncio.run(Client(front, b"ab").ask()) == 503
    assert asyncio.run(Client(front).ask("/healthz")) == 200


def test_a_client_that_takes_no_events_is_hung_up_on() -> None:
    front = Front(FrontLimits(stall_s=0.02))
    client = Client(front, stalls=True)
    assert asyncio.run(client.ask("/events")) == 200
    assert client.hung_up
    assert client.visitor.left
    assert front.phases == [VisitPhase.ANSWER, VisitPhase.STREAM]
