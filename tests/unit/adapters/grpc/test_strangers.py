"""Strangers of a gRPC server who speak HTTP/2 as they should, and show no token."""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.grpc import channels
from millwheel.adapters.grpc import strangers as strangers_module
from millwheel.adapters.grpc.security import Security
from millwheel.adapters.grpc.strangers import Peer, Strangers, peer_of
from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.adapters.pb.worker_pb2_grpc import WorkerStub
from millwheel.engine.workers.server import WorkerService, serve
from tests.unit.adapters.grpc.test_security import WAIT_S, loaded

LIMITS = FrontLimits(strangers=8, grace_s=0.05, head_s=1.0)
CROWD, MOST = 60, 40


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("ipv4:127.0.0.1:5000", ("127.0.0.1", 5000)),
        ("ipv6:%5B::1%5D:5000", ("::1", 5000)),
        ("ipv6:[::ffff:10.0.0.1]:80", ("10.0.0.1", 80)),
        ("unix:/tmp/x", None),
    ],
)
def test_grpc_names_a_peer_as_its_socket_does(name: str, peer: Peer | None) -> None:
    assert peer_of(name) == peer


Step = tuple[str, int]


def lived_through(steps: Sequence[Step], make: Any = Strangers) -> None:
    strangers, members = make(LIMITS), set[Peer]()
    came_s: dict[Peer, float] = {}
    for index, (step, which) in enumerate(steps):
        now_s, peer = index / 10, ("127.0.0.1", which)
        if step == "come":
            came_s.setdefault(peer, now_s)
        elif step == "go":
            came_s.pop(peer, None)
            members.discard(peer)
        elif step == "show" and peer in came_s:
            strangers.admit(f"ipv4:127.0.0.1:{which}")
            members.add(peer)
        over, wait_s = strangers.look(came_s, now_s)
        assert 0 < wait_s <= 5
        assert not members & set(over), "a member was hung up on"
        assert all(now_s - came_s[peer] >= LIMITS.grace_s for peer in over)
        for each in over:
            del came_s[each]
        left = came_s.keys() - members
        assert all(now_s - came_s[peer] < LIMITS.head_s for peer in left), "its time was over"
        assert sum(now_s - came_s[peer] >= LIMITS.grace_s for peer in left) <= LIMITS.strangers


STEPS = st.lists(
    st.tuples(st.sampled_from(["come", "come", "go", "show"]), st.integers(1, 30)), max_size=80
)


@given(STEPS)
def test_members_stay_and_strangers_go_in_time(steps: list[Step]) -> None:
    lived_through(steps)


def test_one_that_is_admitted_while_it_is_looked_who_is_there_stays() -> None:
    strangers, member = Strangers(LIMITS), ("127.0.0.1", 7)

    def earlier() -> Iterator[Peer]:
        strangers.admit("ipv4:127.0.0.1:7")
        yield ("127.0.0.1", 8)

    strangers.look(earlier(), 0.0)
    assert strangers.look([member], 0.1)[0] == []
    assert strangers.look([member], 0.1 + 2 * LIMITS.head_s)[0] == []


def test_members_are_known_after_a_look_that_failed() -> None:
    strangers, member = Strangers(LIMITS), ("127.0.0.1", 7)
    strangers.admit("ipv4:127.0.0.1:7")

    def failing() -> Iterator[Peer]:
        yield ("127.0.0.1", 8)
        raise OSError(errno.EMFILE, "Too many open files")

    with pytest.raises(OSError, match="Too many"):
        strangers.look(failing(), 0.0)
    assert strangers.look([member], 2 * LIMITS.head_s)[0] == []


def test_it_is_looked_on_after_a_moment_without_descriptors(
    service: tuple[WorkerService, str], token_only: Security, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = service
    looks: list[int] = []

    def none_free(port: int) -> Iterator[tuple[Peer, socket.socket]]:
        looks.append(port)
        if len(looks) < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return connections(port)

    connections = strangers_module._connections
    monkeypatch.setattr(strangers_module, "_connections", none_free)
    crowd = Polite(int(address.rpartition(":")[2]), 3)
    until_s = time.monotonic() + WAIT_S
    while crowd.lines and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not crowd.lines
    assert len(looks) >= 3
    crowd.close()


class EverybodyStays(Strangers):
    def look(self, connected: Any, now_s: float) -> tuple[list[Peer], float]:
        return [], super().look(connected, now_s)[1]


class NobodyIsAMember(Strangers):
    def admit(self, peer: str) -> None:
        pass


@pytest.mark.parametrize("wrong", [EverybodyStays, NobodyIsAMember])
def test_every_deliberate_mistake_is_noticed(wrong: Any) -> None:
    steps = [("come", 1), ("show", 1), *(("come", number) for number in range(2, 30))]
    lived_through(steps)
    with pytest.raises(AssertionError):
        lived_through(steps, wrong)


# --- a server


class Polite(threading.Thread):
    """Connections that answer whatever HTTP/2 asks, and ask for nothing."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__(daemon=True)
        self.lines = [socket.create_connection(("127.0.0.1", port), WAIT_S) for _ in range(count)]
        self.over = threading.Event()
        for line in self.lines:
            line.setblocking(False)
            with suppress(OSError):
                line.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0))
        self.start()

    def run(self) -> None:
        while not self.over.wait(0.02):
            for line in list(self.lines):
                if not self._answers(line):
                    self.lines.remove(line)
                    line.close()

    def _answers(self, line: socket.socket) -> bool:
        try:
            data = line.recv(65_536)
            while len(data) >= 9:
                length = int.from_bytes(data[:3], "big")
                kind, flags, payload = data[3], data[4], data[9 : 9 + length]
                if kind in (4, 6) and not flags & 1:  # settings and pings are to be confirmed
                    line.send(_frame(kind, 1, payload if kind == 6 else b""))
                data = data[9 + length :]
                if not data:
                    return True
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        self.over.set()
        self.join()
        for line in self.lines:
            line.close()


def _frame(kind: int, flags: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + bytes(4) + payload


@pytest.fixture
def token_only(ours: Path) -> Security:
    return replace(loaded(ours, "worker"), tls=None)


@pytest.fixture
def service(
    token_only: Security, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[WorkerService, str]]:
    monkeypatch.setattr(channels, "Strangers", partial(Strangers, LIMITS))
    monkeypatch.setattr(channels, "connections", lambda wanted: MOST)
    made = WorkerService(
        lambda event: event.answer(False, 1, 0, 0) if hasattr(event, "answer") else None
    )
    server, address = serve(made, "127.0.0.1:0", token_only)
    yield made, address
    server.stop(None).wait()


def inject(address: str, security: Security) -> None:
    with channels.new_channel(address, security) as channel:
        request = pb.InjectRequest(
            stream="s", target="t", records=[pb.InjectRecord(value=b"1", id="a")]
        )
        assert (
            WorkerStub(channel).Inject(request, timeout=3 * WAIT_S, wait_for_ready=True).accepted
            == 1
        )


def test_they_take_nobodys_place(service: tuple[WorkerService, str], token_only: Security) -> None:
    made, address = service
    port = int(address.rpartition(":")[2])
    with channels.new_channel(address, token_only) as channel:
        reports = WorkerStub(channel).Attach(pb.AttachRequest(master="m"), wait_for_ready=True)
        next(reports)
        until_s, crowds = time.monotonic() + 3, list[Polite]()
        while time.monotonic() < until_s:  # they come again and again
            crowds.append(Polite(port, CROWD))
            inject(address, token_only)
            made.send_to_masters(pb.WorkerReport(memory=0.5))
            assert next(reports).memory == 0.5
        time.sleep(LIMITS.head_s + 0.5)
        assert not [line for crowd in crowds for line in crowd.lines], "their time is over"
        made.send_to_masters(pb.WorkerReport(memory=0.25))
        assert next(reports).memory == 0.25
        for crowd in crowds:
            crowd.close()


def test_a_member_that_says_nothing_for_long_stays(
    service: tuple[WorkerService, str], token_only: Security
) -> None:
    _, address = service
    with channels.new_channel(address, token_only) as channel:
        states: list[grpc.ChannelConnectivity] = []
        request = pb.InjectRequest(
            stream="s", target="t", records=[pb.InjectRecord(value=b"1", id="a")]
        )
        assert (
            WorkerStub(channel).Inject(request, timeout=WAIT_S, wait_for_ready=True).accepted == 1
        )
        channel.subscribe(states.append)
        time.sleep(LIMITS.head_s * 2)
        assert states == [grpc.ChannelConnectivity.READY]
