from __future__ import annotations

import errno
import gc
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from millwheel.adapters.front.tls import GuardedSSLSocket, shaken
from millwheel.adapters.front.visitors import Visitor
from millwheel.adapters.grpc.certificates import client_context, server_context
from millwheel.adapters.grpc.security import load_security
from millwheel.launch.certificates import make_set


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
