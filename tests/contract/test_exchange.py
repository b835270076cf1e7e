from __future__ import annotations

import errno
import gc
import logging
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millwheel.adapters.exchange import handshake as exchange_door
from millwheel.adapters.exchange.exchange import FRAME_BYTES, End, Exchange
from millwheel.adapters.exchange.handshake import Handshakes, RefusedError, dial
from millwheel.adapters.exchange.line import MAX_FRAME_BYTES, Line
from millwheel.adapters.exchange.mailbox import Mailbox
from millwheel.adapters.grpc.security import Security, load_security
from millwheel.errors import CorruptionError, SetupError
from millwheel.pb import worker_pb2 as pb

WAIT_S = 10.0
GREETING = b"millwheel-exchange-1\n\0\0"


class Peer:
    """One side, pumped by the test."""

    def __init__(self, security: Security | None = None) -> None:
        self.frames: list[tuple[pb.Frame, End]] = []
        self.lost: list[str] = []
        self.mailbox = Mailbox()
        self.refuse_what_comes = False
        self.exchange = Exchange("127.0.0.1:0", self.mailbox, self._came, self.lost.append, security)

    def close(self) -> None:
        self.exchange.close()
        self.mailbox.close()

    def _came(self, frame: pb.Frame, end: End) -> None:
        if self.refuse_what_comes:
            raise CorruptionError("what came cannot be read")
        self.frames.append((frame, end))

    def batches(self) -> list[bytes]:
        return [delivery.batch for frame, _ in self.frames for delivery in frame.deliveries]

    def send(self, address: str, *batches: bytes) -> None:
        for index, batch in enumerate(batches):
            self.exchange.deliver(address, pb.Delivery(channel="c", target="t", index=index, batch=batch))
        self.exchange.flush()


def pump(*peers: Peer, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not until():
        assert time.monotonic() < deadline, "it did not come about"
        for peer in peers:
            peer.exchange.wait(0.005)


def loaded(folder: Path) -> Security:
    security = load_security(str(folder), "worker")
    assert security is not None
    return security


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Peer, Peer]]:
    security = None if request.param == "plain" else loaded(request.getfixturevalue("ours"))
    pair = Peer(security), Peer(security)
    yield pair
    for peer in pair:
        peer.close()


def test_deliveries_arrive_in_order_and_answers_come_back(pair: tuple[Peer, Peer]) -> None:
    left, right = pair
    sent = [b"%d" % number for number in range(100)]
    for batch in sent:
        left.send(right.exchange.address, batch)
    pump(*pair, until=lambda: len(right.batches()) == 100)
    assert right.batches() == sent
    end = right.frames[0][1]
    right.exchange.answer(end).acks.add(channel="c", target="t", epoch=1, index=99)
    right.exchange.flush()
    pump(*pair, until=lambda: bool(left.frames))
    assert [ack.index for frame, _ in left.frames for ack in frame.acks] == [99]
    assert not left.lost


def test_what_is_queued_together_is_one_frame(pair: tuple[Peer, Peer]) -> None:
    left, right = pair
    left.send(right.exchange.address, b"a", b"b", b"c")
    pump(*pair, until=lambda: len(right.batches()) == 3)
    assert len(right.frames) == 1


def test_more_than_the_sockets_hold_waits_and_arrives_whole(pair: tuple[Peer, Peer]) -> None:
    left, right = pair
    sent = [os.urandom(FRAME_BYTES + 1 + number) for number in range(8)]
    left.send(right.exchange.address, *sent)
    pump(*pair, until=lambda: len(right.batches()) == len(sent))
    assert right.batches() == sent


def test_both_sides_may_call(pair: tuple[Peer, Peer]) -> None:
    left, right = pair
    left.send(right.exchange.address, b"to the right")
    right.send(left.exchange.address, b"to the left")
    pump(*pair, until=lambda: bool(left.frames and right.frames))
    assert (left.batches(), right.batches()) == ([b"to the left"], [b"to the right"])


def test_a_peer_that_is_gone_is_told_once_and_dialled_again_by_the_next_delivery() -> None:
    left, right = Peer(), Peer()
    address = right.exchange.address
    left.send(address, b"first")
    pump(left, right, until=lambda: bool(right.frames))
    right.close()
    pump(left, until=lambda: left.lost == [address])
    left.send(address, b"lost")
    pump(left, until=lambda: left.lost == [address, address])
    left.close()


def test_a_call_to_nobody_is_told_as_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    left = Peer()
    left.send(address, b"x")
    pump(left, until=lambda: left.lost == [address])
    left.close()


def test_an_answer_to_a_caller_that_hung_up_is_dropped() -> None:
    left, right = Peer(), Peer()
    left.send(right.exchange.address, b"x")
    pump(left, right, until=lambda: bool(right.frames))
    end = right.frames[0][1]
    left.close()
    pump(right, until=lambda: end.line is None)
    right.exchange.answer(end).acks.add(channel="c")
    right.exchange.flush()
    assert not right.lost, "nobody dialled"
    right.close()


def test_events_of_other_threads_wake_the_loop_at_once() -> None:
    peer = Peer()
    began = time.monotonic()
    threading.Timer(0.05, peer.mailbox.put, ("news",)).start()
    assert peer.mailbox.sleep()
    peer.exchange.wait(WAIT_S)
    peer.mailbox.wake()
    assert peer.mailbox.take(10) == ["news"]
    assert time.monotonic() - began < WAIT_S / 2
    peer.mailbox.put("more")
    assert not peer.mailbox.sleep(), "there is something already"
    peer.close()


def test_the_loop_sleeps_for_less_than_a_millisecond() -> None:
    peer = Peer()
    slept = []
    for _ in range(30):
        began = time.monotonic()
        peer.exchange.wait(0.0002)
        slept.append(time.monotonic() - began)
    assert 0.0002 <= min(slept) < 0.0009
    peer.close()


def test_a_mailbox_gives_what_was_put_in_order_and_no_more_than_asked() -> None:
    mailbox = Mailbox()
    for number in range(5):
        mailbox.put(number)
    assert (mailbox.take(2), mailbox.take(10), mailbox.take(10)) == ([0, 1], [2, 3, 4], [])
    mailbox.close()


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

    def test_nothing_listens_off_loopback_without_security(self) -> None:
        with pytest.raises(SetupError, match="without authentication"):
            Handshakes("0.0.0.0:0", lambda _: None)

    def test_a_port_in_use_is_said(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SetupError, match="cannot listen on"):
            Handshakes(f"127.0.0.1:{taken.getsockname()[1]}", lambda _: None)


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


def test_a_frame_longer_than_any_is_not_waited_for() -> None:
    peer = Peer()
    with dial(peer.exchange.address) as caller:
        caller.sendall((MAX_FRAME_BYTES + 1).to_bytes(4, "little"))
        caller.settimeout(0.01)
        assert hung_up(peer, caller)
    peer.close()


def test_what_cannot_be_read_ends_the_connection_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    left, right = Peer(), Peer()
    right.refuse_what_comes = True
    left.send(right.exchange.address, b"x")
    with caplog.at_level(logging.WARNING, "millwheel.exchange"):
        pump(left, right, until=lambda: left.lost == [right.exchange.address])
    assert "what came cannot be read" in caplog.text
    right.refuse_what_comes = False
    left.send(right.exchange.address, b"y")
    pump(left, right, until=lambda: right.batches() == [b"y"])
    for peer in (left, right):
        peer.close()


def hung_up(peer: Peer, caller: socket.socket) -> bool:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        peer.exchange.wait(0.001)
        try:
            return caller.recv(1) == b""
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


@settings(
    max_examples=int(os.environ.get("MILLWHEEL_FUZZ", "60")), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_are_frames_or_the_end_of_the_line(pieces: list[bytes]) -> None:
    ours, caller = socket.socketpair()
    line, got = Line(ours), b""
    with caller:
        try:
            for piece in pieces:
                caller.sendall(piece)
                got += b"".join(len(frame).to_bytes(4, "little") + frame for frame in line.receive())
        except ConnectionError:
            assert any(piece for piece in pieces)
    assert b"".join(pieces).startswith(got), "what is given out is what came, in order"
    line.close()
