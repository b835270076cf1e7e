"""Who may enter, and that nobody who may not keeps others out."""

from __future__ import annotations

import errno
import gc
import logging
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from millwheel.adapters.exchange import handshake as exchange_door
from millwheel.adapters.exchange.handshake import Handshakes, RefusedError, dial
from millwheel.adapters.grpc.security import Security
from millwheel.errors import SetupError
from tests.unit.adapters.exchange.test_exchange import WAIT_S, Peer, loaded, pump

GREETING = b"millwheel-exchange-2\n\0\0"


class TestWhoMayEnter:
    def refused(self, address: str, security: Security | None) -> BaseException:
        try:
            dial(address, security).close()
        except OSError as ex:
            return ex
        pytest.fail("it was let in")

    @pytest.fixture
    def listening(self, ours: Path) -> Iterator[Peer]:
        peer = Peer(loaded(ours))
        yield peer
        assert not peer.frames
        peer.close()

    def test_nobody_who_speaks_no_tls(self, listening: Peer, caplog: pytest.LogCaptureFixture) -> None:
        self.refused(listening.exchange.address, None)

    def test_nobody_without_a_certificate(self, listening: Peer, ours: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=loaded(ours).ca.decode())
        host, _, port = listening.exchange.address.rpartition(":")
        answer = b""
        with socket.create_connection((host, int(port)), WAIT_S) as bare, suppress(OSError):
            with context.wrap_socket(bare, server_hostname="millwheel") as caller:
                caller.sendall(GREETING)
                answer = caller.recv(1)
        assert answer == b""

    def test_nobody_with_a_certificate_of_another_ca(self, listening: Peer, ours: Path, theirs: Path) -> None:
        us, them = loaded(ours), loaded(theirs)
        self.refused(listening.exchange.address, Security(us.ca, them.certificate, them.key, us.token))

    def test_nobody_with_a_wrong_token(
        self, listening: Peer, ours: Path, theirs: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        us, them = loaded(ours), loaded(theirs)
        with caplog.at_level(logging.WARNING, "millwheel.security"):
            error = self.refused(listening.exchange.address, Security(us.ca, us.certificate, us.key, them.token))
        assert isinstance(error, RefusedError)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 1
        assert "a wrong token" in lines[0]
        assert them.token not in lines[0]

    def test_a_caller_believes_no_worker_of_another_ca(self, listening: Peer, ours: Path, theirs: Path) -> None:
        us, them = loaded(ours), loaded(theirs)
        self.refused(listening.exchange.address, Security(them.ca, us.certificate, us.key, us.token))

    def test_a_token_where_none_is_wanted_is_refused(self, ours: Path) -> None:
        listening = Peer()
        host, _, port = listening.exchange.address.rpartition(":")
        with socket.create_connection((host, int(port)), WAIT_S) as caller:
            caller.sendall(GREETING[:-2] + b"\x03\0abc")
            assert caller.recv(1) == b"-"
        listening.close()

    def test_an_address_that_is_longer_than_any_is_refused(self) -> None:
        listening = Peer()
        host, _, port = listening.exchange.address.rpartition(":")
        with socket.create_connection((host, int(port)), WAIT_S) as caller:
            caller.sendall(GREETING + b"\xff\xff")
            assert caller.recv(1) == b"-"
        listening.close()

    def test_nothing_listens_off_loopback_without_security(self) -> None:
        with pytest.raises(SetupError, match="without authentication"):
            Handshakes("0.0.0.0:0", lambda *_: None)

    def test_a_port_in_use_is_said(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SetupError, match="cannot listen on"):
            Handshakes(f"127.0.0.1:{taken.getsockname()[1]}", lambda *_: None)


def test_who_says_no_hello_is_hung_up_on_and_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_door, "_HELLO_TIMEOUT_S", 0.3)
    left, right = Peer(), Peer()
    host, _, port = right.exchange.address.rpartition(":")
    with socket.create_connection((host, int(port)), WAIT_S) as silent:
        silent.sendall(GREETING[:5])
        left.send(right.exchange.address, b"x")
        pump(left, right, until=lambda: bool(right.frames))
        assert silent.recv(1) == b"", "hung up on, after its time"
    for peer in (left, right):
        peer.close()


def test_callers_that_vanish_at_once_keep_nobody_out(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_door, "_MOST_HELLOS", 8)
    left, right = Peer(loaded(ours)), Peer(loaded(ours))
    host, _, port = right.exchange.address.rpartition(":")
    for _ in range(40):
        caller = socket.create_connection((host, int(port)), WAIT_S)
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.close()
        time.sleep(0.005)
    left.send(right.exchange.address, b"x")
    pump(left, right, until=lambda: bool(right.frames or left.lost))
    assert right.batches() == [b"x"]
    for peer in (left, right):
        peer.close()


def test_a_connection_that_is_lost_half_made_is_closed(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class HalfMade(exchange_door._Wrapped):
        def getpeername(self) -> Any:
            raise OSError(errno.EINVAL, "the caller hung up meanwhile")

    monkeypatch.setattr(exchange_door, "_Wrapped", HalfMade)
    context = exchange_door._context(loaded(ours), ssl.PROTOCOL_TLS_SERVER)
    left, right = socket.socketpair()
    with pytest.raises(OSError, match="hung up"):
        context.wrap_socket(left, server_side=True)
    gc.collect()
    assert right.recv(1) == b"", "it is closed"
    right.close()


def test_too_many_hellos_at_a_time_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_door, "_MOST_HELLOS", 2)
    peer = Peer()
    host, _, port = peer.exchange.address.rpartition(":")
    callers = [socket.create_connection((host, int(port)), WAIT_S) for _ in range(3)]
    assert callers[2].recv(1) == b""
    for caller in callers:
        caller.close()
    peer.close()
