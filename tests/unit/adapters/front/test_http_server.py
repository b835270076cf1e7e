"""uvicorn behind the front, over real sockets. ``tests/contract/listeners`` has the attacks."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from millwheel.adapters.front import http_server
from millwheel.adapters.front.http_server import FrontedServer
from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.listener import listening

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
