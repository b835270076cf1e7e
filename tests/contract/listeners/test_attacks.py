"""Whatever strangers do to a listener, members and probes go on, newcomers get in, and memory stays
bounded.

All of it is on the loopback, bounded, and over when the deadlines of the listener are."""

from __future__ import annotations

import inspect
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.contract.listeners.served import ENDED_S, LISTENERS, Listener

MOST_BYTES = 64 << 20
_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")
CROWD = 60  # of attackers: more strangers than a listener has room for
ENDLESS_BYTES = 16 << 20  # that all of them together try to send


@pytest.fixture(scope="module", params=LISTENERS)
def listener(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Listener]:
    made: Any = LISTENERS[request.param]
    folder: tuple[Path, ...] = (
        (tmp_path_factory.mktemp("run"),) if inspect.signature(made).parameters else ()
    )
    with made(*folder) as found:
        yield found


class Crowd:
    """Strangers that are connected at the same time."""

    def __init__(self, port: int, count: int, says: bytes = b"") -> None:
        self.port = port
        self.strangers = [self._stranger(says) for _ in range(count)]

    def _stranger(self, says: bytes) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), 5)
        made.setblocking(False)
        self._send(made, says)
        return made

    def _send(self, stranger: socket.socket, says: bytes) -> int:
        try:
            return stranger.send(says)
        except OSError:  # it was hung up on, or nobody takes more
            return 0

    def say(self, text: bytes) -> int:
        """How many bytes were taken of all."""
        return sum(self._send(each, text) for each in self.strangers)

    def left(self) -> int:
        """How many have not been hung up on; reads what they were told."""
        return sum(not _is_over(each) for each in self.strangers)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.strangers:
            each.close()


def _is_over(stranger: socket.socket) -> bool:
    try:
        while stranger.recv(1 << 20):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@pytest.fixture(autouse=True)
def _bounded_memory(listener: Listener) -> Iterator[None]:
    """What an attack costs at its height, with its own sockets, which are in the same process."""
    # the peak is what is resident from here
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = psutil.Process().memory_info().rss
    yield
    found = _PEAK.search(Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    assert int(found[1]) * 1024 - before < MOST_BYTES


def goes_on(listener: Listener, member: Any) -> None:
    """All that must work beside an attack."""
    member()
    if listener.probe is not None:
        listener.probe()
    listener.newcomer()
    member()


def test_silent_strangers(listener: Listener) -> None:
    member = listener.member()
    with Crowd(listener.port, CROWD) as crowd:
        goes_on(listener, member)
        ends(crowd)


def test_half_a_handshake(listener: Listener) -> None:
    member = listener.member()
    with Crowd(listener.port, CROWD, listener.half) as crowd:
        goes_on(listener, member)
        ends(crowd)


def test_trickling_strangers(listener: Listener) -> None:
    member, began_s = listener.member(), time.monotonic()
    with Crowd(listener.port, CROWD // 2) as crowd:
        text = listener.half + b"x" * 1_000
        for index in range(1_000):
            crowd.say(text[index : index + 1])
            if index == 5:
                goes_on(listener, member)
            if not crowd.left():
                return
            assert time.monotonic() - began_s < ENDED_S, "a letter now and then keeps them in"
            time.sleep(0.05)


def test_endless_heads(listener: Listener) -> None:
    member, (begin, piece) = listener.member(), listener.endless
    with Crowd(listener.port, 8, begin) as crowd:
        sent, idle = 0, 0
        while sent < ENDLESS_BYTES and idle < 20 and crowd.left():
            taken = crowd.say(piece)
            sent += taken
            idle = 0 if taken else idle + 1
            time.sleep(0.01)
        goes_on(listener, member)
        ends(crowd)


def test_a_rest_that_never_comes(listener: Listener) -> None:
    member = listener.member()
    with Crowd(listener.port, CROWD, listener.stalled) as crowd:
        goes_on(listener, member)
        ends(crowd)


def test_a_thousand_connections(listener: Listener) -> None:
    member = listener.member()
    with Crowd(listener.port, 1_000) as crowd:
        goes_on(listener, member)
        ends(crowd)


def test_answers_that_nobody_takes(listener: Listener) -> None:
    member = listener.member()
    with Crowd(listener.port, 40, listener.unread):
        for _ in range(3):
            goes_on(listener, member)
            time.sleep(0.1)


def ends(crowd: Crowd) -> None:
    """All of them are hung up on, in time."""
    until_s = time.monotonic() + ENDED_S
    while crowd.left():
        assert time.monotonic() < until_s, f"{crowd.left()} strangers are still connected"
        with suppress(OSError):
            time.sleep(0.05)
