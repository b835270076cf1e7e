"""The front over real sockets: who reaches the server behind it, and who is hung up on."""

from __future__ import annotations

import errno
import gc
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.listener import Front, GuardedSSLSocket, listening, shaken
from millwheel.adapters.front.visitors import Visitor, VisitPhase
from millwheel.adapters.grpc.certificates import client_context, server_context
from millwheel.adapters.grpc.security import load_security
from millwheel.errors import SetupError
from millwheel.launch.certificates import make_set

WAIT_S = 10.0
QUICK = FrontLimits(strangers=8, most=4, grace_s=0.02, silent_s=0.2, head_s=0.3)
Taken = SimpleQueue[tuple[socket.socket, Visitor]]


class Served:
    def __init__(self, limits: FrontLimits) -> None:
        bound = listening("127.0.0.1:0", "Nothing can be served at")
        self.port = bound.getsockname()[1]
        self.taken: Taken = SimpleQueue()
        self.front = Front(bound, limits, lambda *it: self.taken.put(it), "test")
        self.front.start()

    def client(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_S)


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served(QUICK)
    yield made
    made.front.close()


def ends(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_a_connection_reaches_the_server_with_its_first_byte(served: Served) -> None:
    with served.client(), served.client() as speaking:
        speaking.sendall(b"x")
        taken, visitor = served.taken.get(timeout=WAIT_S)
        assert taken.recv(1) == b"x"
        assert visitor.phase is VisitPhase.HEAD
        assert served.taken.empty()
        taken.close()


def test_silent_and_trickling_ones_are_hung_up_on_in_time(served: Served) -> None:
    began_s = time.monotonic()
    with served.client() as silent, served.client() as trickling:
        trickling.sendall(b"x")
        taken, _ = served.taken.get(timeout=WAIT_S)
        assert ends(silent)
        assert ends(trickling), "the server still holds it, and sees its end, too"
        assert ends(taken) or ends(taken)
        assert time.monotonic() - began_s < WAIT_S / 2
        taken.close()


def test_a_member_stays_beside_a_thousand_silent_ones(served: Served) -> None:
    with served.client() as member:
        member.sendall(b"x")
        taken, visitor = served.taken.get(timeout=WAIT_S)
        assert served.front.advance(visitor, VisitPhase.ADMITTED)
        crowd = [served.client() for _ in range(200)]
        with served.client() as late:
            late.sendall(b"y")
            spoke = served.taken.get(timeout=WAIT_S)[0]
            assert spoke.recv(1) == b"y", "a newcomer that speaks gets in"
            spoke.close()
        taken.sendall(b"!")
        assert member.recv(1) == b"!"
        for each in crowd:
            each.close()
        taken.close()


def test_nobody_goes_whose_words_the_server_has_not_read_yet() -> None:
    served = Served(replace(QUICK, head_s=WAIT_S))
    try:
        with served.client() as probe:
            probe.sendall(b"x")
            taken, visitor = served.taken.get(timeout=WAIT_S)
            crowd = []
            for _ in range(20):  # each displaces one, as soon as it may
                crowd.append(served.client())
                crowd[-1].sendall(b"y")
                crowd.append(served.taken.get(timeout=WAIT_S)[0])
                crowd[-1].recv(1)
                time.sleep(QUICK.grace_s)
            assert not visitor.left
            assert taken.recv(1) == b"x"
            crowd.append(served.client())
            crowd[-1].sendall(b"y")
            served.taken.get(timeout=WAIT_S)[0].close()
            assert ends(probe), "now it is only one of those that trickle"
            for each in (*crowd, taken):
                each.close()
    finally:
        served.front.close()


def test_a_server_that_cannot_take_a_connection_keeps_nobody_out() -> None:
    def broken(connection: socket.socket, visitor: Visitor) -> None:
        raise RuntimeError("can't start new thread")

    bound = listening("127.0.0.1:0", "Nothing can be served at")
    front = Front(bound, QUICK, broken, "test")
    port = bound.getsockname()[1]
    front.start()
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as client:
            client.sendall(b"x")
            assert ends(client)
    front.close()


def test_after_its_end_nobody_is_kept_and_nobody_comes_in(served: Served) -> None:
    with served.client() as silent:
        served.front.close()
        assert ends(silent)
    with pytest.raises(ConnectionRefusedError):
        served.client()
    served.front.close()


def test_a_front_that_was_never_started_can_be_closed() -> None:
    bound = listening("127.0.0.1:0", "Nothing can be served at")
    Front(bound, QUICK, lambda *_: None, "test").close()
    assert bound.fileno() < 0


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            SetupError, match=f"Nothing can be served at {address}: .*; choose another port"
        ):
            listening(address, "Nothing can be served at", "; choose another port")


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    security = load_security(str(make_set(str(tmp_path_factory.mktemp("tls") / "set"))))
    assert security is not None
    assert security.tls is not None
    made: ssl.SSLContext = server_context(security.tls)
    return made


def test_after_the_handshake_the_front_can_still_hang_up(context: ssl.SSLContext) -> None:
    left, right = socket.socketpair()
    with left, right:
        visitor = Visitor("127.0.0.1", lambda: None)
        threading.Timer(0.1, lambda: visitor.hang_up()).start()
        with pytest.raises(OSError, match=r"EOF|handshake|closed"):
            shaken(context, left, visitor)  # the other side says nothing


def test_who_was_hung_up_on_gets_no_handshake(context: ssl.SSLContext) -> None:
    left, right = socket.socketpair()
    with left, right:
        gone = Visitor("127.0.0.1", lambda: None, left=True)
        with pytest.raises(ConnectionError, match="too long"):
            shaken(context, left, gone)
        assert right.recv(1) == b""


def test_a_connection_that_is_lost_half_made_is_closed(context: ssl.SSLContext) -> None:
    class HalfMade(GuardedSSLSocket):
        def getpeername(self) -> Any:
            raise OSError(errno.EINVAL, "the caller hung up meanwhile")

    context.sslsocket_class = HalfMade
    left, right = socket.socketpair()
    with pytest.raises(OSError, match="hung up"):
        context.wrap_socket(left, server_side=True)
    gc.collect()
    assert right.recv(1) == b"", "it is closed"
    right.close()


def test_a_client_believes_our_ca_alone_and_no_key_stays_on_disk(tmp_path: Path) -> None:
    security = load_security(str(make_set(str(tmp_path / "set"))))
    assert security is not None
    assert security.tls is not None
    before = set(Path("/tmp").glob("millwheel-*.pem"))
    server, client = server_context(security.tls), client_context(security.tls)
    assert set(Path("/tmp").glob("millwheel-*.pem")) <= before
    assert client.verify_mode == ssl.CERT_REQUIRED
    assert server.protocol == ssl.PROTOCOL_TLS_SERVER
