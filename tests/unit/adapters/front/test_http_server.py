"""uvicorn behind the front, over real sockets. ``tests/contract/listeners`` has the attacks."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from millwheel.adapters.front import http_server
from millwheel.adapters.front.http_server import VISITOR, FrontedServer, Visits
from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.listener import listening
from millwheel.adapters.front.visitors import Visitor, Visitors, VisitPhase


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


WAIT_S = 10.0


async def _taken(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


@contextmanager
def serving(limits: FrontLimits) -> Iterator[int]:
    bound = listening("127.0.0.1:0", "No application at")
    app = Starlette(routes=[Route("/", _taken, methods=["GET", "POST"])])
    server = FrontedServer(app, bound, limits, timeout_graceful_shutdown=1)
    thread = threading.Thread(target=server.serve_on_this_thread)
    thread.start()
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), WAIT_S)


@pytest.fixture(params=["h11", "httptools"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "h11":
        monkeypatch.setattr(http_server, "_protocol", http_server._VisitedH11)


@pytest.mark.usefixtures("parser")
def test_requests_of_one_connection_are_answered_one_after_the_other() -> None:
    with serving(FrontLimits(head_bytes=1_000)) as port:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        for body in (b"", b"x" * 300_000, b"yy"):
            client.request("POST" if body else "GET", "/", body or None)
            assert client.getresponse().read() == str(len(body)).encode()
        client.close()


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 5_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1_000,
        b"GET /" + b"y" * 5_000,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
        + b"X: y\r\n" * 200_000,
    ],
    ids=["a header", "headers", "an address", "trailers"],
)
def test_what_becomes_no_request_is_not_kept(sent: bytes) -> None:
    with (
        serving(FrontLimits(head_bytes=2_000)) as port,
        socket.create_connection(("127.0.0.1", port), WAIT_S) as client,
    ):
        try:
            client.sendall(sent)
            said = client.recv(1_000)
        except ConnectionError:
            said = b""
        assert b" 200 " not in said


def test_a_client_does_not_queue_any_number_of_requests() -> None:
    with serving(FrontLimits()) as port, connected(port) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1_000)
        said = b""
        while more := _more(client):
            said += more
        assert said.count(b" 200 OK") < 50


def _more(client: socket.socket) -> bytes:
    try:
        return client.recv(65_536)
    except ConnectionError:
        return b""
