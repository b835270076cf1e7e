"""Every listener of the project on the loopback, with short deadlines: how a member and a probe use
it."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette

from millwheel.adapters.exchange.handshake import Handshakes, dial
from millwheel.adapters.front.http_server import FrontedServer
from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.listener import listening
from millwheel.adapters.grpc import channels
from millwheel.adapters.grpc.injection_client import InjectionResult
from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.adapters.pb.worker_pb2_grpc import WorkerStub
from millwheel.connect.connectors.http.endpoint import HEALTH, HttpEndpoint
from millwheel.connect.connectors.http.options import HttpOptions
from millwheel.engine.queries.cluster import ClusterMap
from millwheel.engine.queries.commands import QueryService
from millwheel.engine.queries.names import Catalog
from millwheel.engine.queries.peer_client import Workers
from millwheel.engine.queries.server import QueryServer
from millwheel.engine.workers.server import WorkerService, serve
from millwheel.tools.gateway.app import Gateway
from millwheel.tools.gateway.owners import Owners
from millwheel.tools.ui.app import PageSettings, RunPage
from tests.unit.tools.gateway.test_app import CATALOG, Links
from tests.unit.tools.ui.test_app import Run, Told

WAIT_S = 10.0
LIMITS = FrontLimits(
    strangers=32, most=64, grace_s=0.02, silent_s=0.4, head_s=0.6, body_s=0.6, pause_s=0.6,
    answer_s=1.0, stall_s=0.4,
    head_bytes=8_192,
)  # fmt: skip
ENDED_S = 4.0
"""Beyond the sum of all deadlines: by then nobody is left who has not been served."""


@dataclass(frozen=True)
class Listener:
    """A listener as its attackers see it. ``half``: the beginning of a handshake or head.
    ``endless``: a beginning, and what may follow it for ever. ``stalled``: a complete beginning
    whose rest never comes. ``unread``: asks for more than the sender takes.

    ``newcomer`` is served, or raises. ``member`` begins something that lasts, and returns how it
    goes on. ``probe`` is None where there is none."""

    port: int
    half: bytes
    endless: tuple[bytes, bytes]
    stalled: bytes
    unread: bytes
    newcomer: Callable[[], object]
    member: Callable[[], Callable[[], object]]
    probe: Callable[[], object] | None = None


def asked(port: int, path: str, body: bytes | None = None) -> bytes:
    """The answer to a request, which must succeed."""
    status, found = _status(port, path, body)
    assert status == 200, (status, found[:200])
    return found


def _status(port: int, path: str, body: bytes | None) -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        client.request("GET" if body is None else "POST", path, body)
        reply = client.getresponse()
        return reply.status, reply.read()
    finally:
        client.close()


@contextmanager
def exchange() -> Iterator[Listener]:
    """The connections between workers."""
    opened: list[socket.socket] = []
    handshakes = Handshakes("127.0.0.1:0", lambda it, _: opened.append(it), None, LIMITS)

    def member() -> Callable[[], object]:
        before = len(opened)
        dialled = dial(handshakes.address, None, "127.0.0.1:1")
        while len(opened) == before:
            time.sleep(0.005)
        there = opened[-1]

        def go_on() -> None:
            dialled.sendall(b"frame")
            assert there.recv(5) == b"frame"

        stack.callback(dialled.close)
        return go_on

    greeting = b"millwheel-exchange-2\n"
    with ExitStack() as stack:
        stack.callback(lambda: [each.close() for each in opened])
        stack.callback(handshakes.close)
        yield Listener(
            int(handshakes.address.rpartition(":")[2]),
            half=greeting[:9],
            endless=(greeting + b"\xff\xff", b"x" * 65_536),
            stalled=greeting + b"\x10\0tok",
            unread=greeting + b"\0\0\0\0",
            newcomer=lambda: dial(handshakes.address, None, "127.0.0.1:1").close(),
            member=member,
        )


@contextmanager
def metrics() -> Iterator[Listener]:
    """``/metrics`` of a process, with a page that is larger than the buffers of sockets."""
    large, slow = b"m 1\n" * (2 << 20), threading.Event()
    pages = {
        "/metrics": lambda: b"up 1\n",
        "/large": lambda: large,
        "/slow": lambda: slow.wait(WAIT_S) and b"up 1\n",
    }
    endpoint = Endpoint("127.0.0.1:0", None, pages, limits=LIMITS)  # type: ignore[arg-type]
    endpoint.start()
    port = int(endpoint.address.rpartition(":")[2])
    yield Listener(
        port,
        **_requests("/large"),
        newcomer=lambda: asked(port, "/metrics"),
        member=lambda: lambda: asked(port, "/metrics"),
        probe=lambda: asked(port, "/healthz"),
    )
    endpoint.close()


@contextmanager
def queries() -> Iterator[Listener]:
    """The Redis protocol of a worker that asks for a token."""
    token = "the-token-of-this-pipeline"
    catalog, cluster = Catalog({"n": "int"}, frozenset()), ClusterMap("w0", "n")
    service = QueryService(catalog, cluster, lambda: 1, lambda shown: shown == token.encode())
    server = QueryServer("127.0.0.1:0", service, lambda batch: None, lambda: None, limits=LIMITS)
    server.start()
    port = int(server.address.rpartition(":")[2])

    def member() -> Callable[[], object]:
        client = socket.create_connection(("127.0.0.1", port), WAIT_S)
        stack.callback(client.close)
        client.sendall(b"AUTH " + token.encode() + b"\r\n")
        assert client.recv(5) == b"+OK\r\n"

        def go_on() -> None:
            client.sendall(b"PING\r\n")
            assert client.recv(7) == b"+PONG\r\n"

        return go_on

    with ExitStack() as stack:
        stack.callback(server.stop)
        yield Listener(
            port,
            half=b"*2\r\n$4\r\nAU",
            endless=(b"*2\r\n$4\r\nAUTH\r\n$60000000\r\n", b"x" * 65_536),
            stalled=b"*2\r\n$4\r\nAUTH\r\n$100\r\nx",
            unread=b"COMMAND\r\n" * 100_000,
            newcomer=lambda: member()(),
            member=member,
        )


@contextmanager
def page(folder: Path) -> Iterator[Listener]:
    """The page of a run."""
    app = RunPage(Run(folder), Told(), PageSettings(hosts=("127.0.0.1",), write_token="t")).app()  # type: ignore[arg-type]
    with ExitStack() as stack:
        port = stack.enter_context(_http(app, ["/healthz"]))
        yield Listener(
            port,
            **_requests("/api/events", "/api/letters/replay"),
            newcomer=lambda: asked(port, "/api/live"),
            member=lambda: _followed(port, stack),
            probe=lambda: asked(port, "/healthz"),
        )


@contextmanager
def gateway() -> Iterator[Listener]:
    """The gateway of queries."""
    run = SimpleNamespace(catalog=CATALOG, owners=Owners(frozenset({"clicks"})))
    app = Gateway(run, lambda: Workers(Links())).app()  # type: ignore[arg-type]
    with _http(app, ["/healthz", "/readyz"]) as port:
        yield Listener(
            port,
            **_requests("/openapi.json", "/v1/query"),
            newcomer=lambda: asked(port, "/v1/indicators"),
            member=lambda: lambda: asked(port, "/v1/indicators"),
            probe=lambda: asked(port, "/healthz"),
        )


@contextmanager
def http_source() -> Iterator[Listener]:
    """The endpoint that accepts records."""

    async def inject(lines: Any, ids: Any, traces: Any) -> InjectionResult:
        await asyncio.sleep(0)
        return InjectionResult(accepted=len(lines))

    endpoint = HttpEndpoint(HttpOptions(8080, max_requests=40), "", inject)
    with _http(endpoint.app(), [HEALTH]) as port:

        def sent() -> None:
            # As a sender does: a request may have to make room before its body was looked at.
            until_s = time.monotonic() + WAIT_S
            while (answer := _status(port, "/", b'{"n":1}'))[0] == 429:
                assert time.monotonic() < until_s, answer
                time.sleep(0.1)
            assert (answer[0], json.loads(answer[1])["accepted"]) == (200, 1)

        yield Listener(
            port,
            **_requests(HEALTH, "/"),
            newcomer=sent,
            member=lambda: sent,
            probe=lambda: asked(port, HEALTH),
        )


@contextmanager
def grpc_server() -> Iterator[Listener]:
    """The services of a worker. gRPC has settings of its own."""
    with pytest.MonkeyPatch.context() as patch:
        names = (
            "server_handshake_timeout_ms",
            "http2.settings_timeout",
            "keepalive_time_ms",
            "keepalive_timeout_ms",
        )
        short = {f"grpc.{name}": 600 for name in names}
        patch.setattr(
            channels, "SERVER_OPTIONS", tuple({**dict(channels.SERVER_OPTIONS), **short}.items())
        )
        service = WorkerService(
            lambda event: event.answer(False, 1, 0, 0) if hasattr(event, "answer") else None
        )
        server, address = serve(service, "127.0.0.1:0")

    def newcomer() -> None:
        with channels.new_channel(address) as channel:
            request = pb.InjectRequest(
                stream="s", target="t", records=[pb.InjectRecord(value=b"1", id="a")]
            )
            assert (
                WorkerStub(channel).Inject(request, timeout=WAIT_S, wait_for_ready=True).accepted
                == 1
            )

    def member() -> Callable[[], object]:
        channel = channels.new_channel(address)
        stack.callback(channel.close)
        reports = WorkerStub(channel).Attach(pb.AttachRequest(master="m"), wait_for_ready=True)
        next(reports)

        def go_on() -> None:
            service.send_to_masters(pb.WorkerReport(memory=0.5))
            assert next(reports).memory == 0.5

        return go_on

    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    settings = preface + b"\0\0\0\4\0\0\0\0\0"
    headers = b"\0\x40\0\1\0\0\0\0\1"  # a frame of headers without an end, and continuations of it
    with ExitStack() as stack:
        stack.callback(lambda: server.stop(None).wait())
        yield Listener(
            int(address.rpartition(":")[2]),
            half=preface[:10],
            endless=(
                settings + headers + b"\0" * 16_384,
                (b"\0\x40\0\x09\0\0\0\0\1" + b"\0" * 16_384) * 4,
            ),
            stalled=settings,
            unread=settings,
            newcomer=newcomer,
            member=member,
        )


def _requests(large: str, posts: str = "") -> dict[str, Any]:
    """What attackers send to an HTTP server that has the answer ``large``, and takes bodies at
    ``posts``."""
    head = b"%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer t\r\n"
    post = head % f"POST {posts or '/'}".encode() + b"Content-Length: 1000\r\n\r\nx"
    return {
        "half": b"GET / HTTP/1.1\r\nHos",
        "endless": (b"GET / HTTP/1.1\r\nX: ", b"y" * 65_536),
        "stalled": post if posts else head % b"GET /metrics",
        "unread": (head % f"GET {large}".encode() + b"\r\n") * 8,
    }


@contextmanager
def _http(app: Starlette, probes: list[str]) -> Iterator[int]:
    bound = listening("127.0.0.1:0", "No application at")
    server = FrontedServer(app, bound, LIMITS, probes, timeout_graceful_shutdown=1)
    thread = threading.Thread(target=server.serve_on_this_thread)
    thread.start()
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def _followed(port: int, stack: ExitStack) -> Callable[[], object]:
    """A page that is kept up to date: it is told something now, and later."""
    client = socket.create_connection(("127.0.0.1", port), WAIT_S)
    stack.callback(client.close)
    client.sendall(b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert b" 200 " in client.recv(65_536)

    def go_on() -> None:
        client.settimeout(0.01)
        with suppress(TimeoutError, BlockingIOError):
            while True:
                assert client.recv(65_536), "the stream has ended"

    return go_on


LISTENERS = {
    "exchange": exchange,
    "metrics": metrics,
    "queries": queries,
    "page": page,
    "gateway": gateway,
    "http source": http_source,
    "gRPC": grpc_server,
}
