"""Who may enter, and that nobody who may not keeps others out."""

from __future__ import annotations

import logging
import queue
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from millwheel.adapters.exchange import handshake
from millwheel.adapters.exchange.handshake import Handshakes, RefusalLog, RefusedError, dial
from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.grpc.security import Security
from millwheel.errors import SetupError
from tests.unit.adapters.exchange.test_exchange import WAIT_S, Peer, certificates, loaded

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

    def test_nobody_who_speaks_no_tls(
        self, listening: Peer, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.refused(listening.exchange.address, None)

    def test_nobody_without_a_certificate(self, listening: Peer, ours: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=certificates(ours).ca.decode())
        host, _, port = listening.exchange.address.rpartition(":")
        answer = b""
        with socket.create_connection((host, int(port)), WAIT_S) as bare, suppress(OSError):
            with context.wrap_socket(bare, server_hostname="millwheel") as caller:
                caller.sendall(GREETING)
                answer = caller.recv(1)
        assert answer == b""

    def test_nobody_with_a_certificate_of_another_ca(
        self, listening: Peer, ours: Path, theirs: Path
    ) -> None:
        us = loaded(ours)
        self.refused(
            listening.exchange.address,
            Security(us.token, replace(certificates(theirs), ca=certificates(ours).ca)),
        )

    def test_nobody_with_a_wrong_token(
        self, listening: Peer, ours: Path, theirs: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        us, them = loaded(ours), loaded(theirs)
        with caplog.at_level(logging.WARNING, "millwheel.security"):
            error = self.refused(listening.exchange.address, replace(us, token=them.token))
        assert isinstance(error, RefusedError)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 1
        assert "a wrong token" in lines[0]
        assert them.token not in lines[0]

    def test_a_caller_believes_no_worker_of_another_ca(
        self, listening: Peer, ours: Path, theirs: Path
    ) -> None:
        us = loaded(ours)
        self.refused(
            listening.exchange.address,
            Security(us.token, replace(certificates(ours), ca=certificates(theirs).ca)),
        )

    def test_nobody_without_the_token_where_there_are_no_certificates(self) -> None:
        us, them = Security("t" * 32), Security("s" * 32)
        opened: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        listening = Handshakes("127.0.0.1:0", lambda it, _: opened.put(it), us)
        for stranger in (None, them, replace(them, token=us.proof("127.0.0.1:1"))):
            self.refused(listening.address, stranger)
        dial(listening.address, us).close()
        opened.get(timeout=WAIT_S).close()
        assert opened.empty()
        listening.close()

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
        with (
            socket.create_server(("127.0.0.1", 0)) as taken,
            pytest.raises(SetupError, match="cannot listen on"),
        ):
            Handshakes(f"127.0.0.1:{taken.getsockname()[1]}", lambda *_: None)


class Fronted:
    """What lets workers in, under limits of its own, and who came in."""

    def __init__(self, limits: FrontLimits, security: Security | None = None) -> None:
        self.security = security
        self.opened: list[socket.socket] = []
        self.handshakes = Handshakes(
            "127.0.0.1:0", lambda it, _: self.opened.append(it), security, limits
        )

    def stranger(self, says: bytes = b"") -> socket.socket:
        host, _, port = self.handshakes.address.rpartition(":")
        made = socket.create_connection((host, int(port)), WAIT_S)
        made.sendall(says)
        return made

    def dial(self) -> socket.socket:
        return dial(self.handshakes.address, self.security, "127.0.0.1:1")

    def close(self) -> None:
        self.handshakes.close()
        for each in self.opened:
            each.close()


def hung_up_on(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("says", [b"", GREETING[:5]])
def test_who_says_no_hello_is_hung_up_on_in_time(says: bytes) -> None:
    fronted = Fronted(FrontLimits(silent_s=0.2, head_s=0.2))
    with fronted.stranger(says) as stranger:
        assert hung_up_on(stranger)
    fronted.close()


@pytest.mark.parametrize("says", [b"", GREETING[:5], b"\x16\x03\x01"])
def test_more_strangers_than_there_is_room_for_keep_no_worker_out(ours: Path, says: bytes) -> None:
    fronted = Fronted(FrontLimits(strangers=8, grace_s=0.2), loaded(ours))
    strangers = [fronted.stranger(says) for _ in range(30)]
    fronted.dial().close()
    assert hung_up_on(strangers[0])
    for each in strangers:
        each.close()
    fronted.close()


def test_callers_that_vanish_at_once_keep_nobody_out(ours: Path) -> None:
    fronted = Fronted(FrontLimits(strangers=8), loaded(ours))
    for _ in range(40):
        caller = fronted.stranger()
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.close()
    fronted.dial().close()
    fronted.close()


def test_a_worker_that_was_let_in_has_no_deadline() -> None:
    fronted = Fronted(FrontLimits(strangers=2, grace_s=0.01, silent_s=0.05, head_s=0.05))
    with fronted.dial() as worker:
        strangers = [fronted.stranger() for _ in range(5)]
        assert all(map(hung_up_on, strangers))
        worker.sendall(b"!")
        while not fronted.opened:
            time.sleep(0.01)
        assert fronted.opened[0].recv(1) == b"!"
        for each in strangers:
            each.close()
    fronted.close()


def test_many_refusals_are_few_lines_and_none_is_uncounted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(handshake, "monotonic", lambda: now_s[0])
    refusals = RefusalLog(logging.getLogger("t"))
    for _ in range(1_000):
        refusals.warn("Refused %s.", "it")
    now_s[0] += 1
    refusals.warn("Refused %s.", "that")
    assert [each.getMessage() for each in caplog.records] == [
        "Refused it.",
        "Refused that. 999 others were refused since the last line.",
    ]
