from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millwheel.adapters.exchange.exchange import FRAME_BYTES, End, Exchange
from millwheel.adapters.exchange.frames import Frame
from millwheel.adapters.exchange.mailbox import Mailbox
from millwheel.adapters.grpc.security import Certificates, Security, load_security
from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.errors import CorruptionError

WAIT_S = 10.0


class Peer:
    """One side, pumped by the test."""

    def __init__(self, security: Security | None = None) -> None:
        self.frames: list[tuple[Frame, End]] = []
        self.lost: list[str] = []
        self.mailbox = Mailbox()
        self.refuse_what_comes = False
        self.exchange = Exchange(
            "127.0.0.1:0", self.mailbox, self._came, self.lost.append, security
        )

    def close(self) -> None:
        self.exchange.close()
        self.mailbox.close()

    def _came(self, frame: Frame, end: End) -> None:
        if self.refuse_what_comes:
            raise CorruptionError("what came cannot be read")
        self.frames.append((frame, end))

    def batches(self) -> list[bytes]:
        return [bytes(batch) for frame, _ in self.frames for _, batch in frame.deliveries]

    def send(self, address: str, *batches: bytes) -> None:
        for index, batch in enumerate(batches):
            self.exchange.deliver(
                address, pb.Delivery(channel="c", target="t", index=index), [batch]
            )
        self.exchange.flush()


def pump(*peers: Peer, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not until():
        assert time.monotonic() < deadline, "it did not come about"
        for peer in peers:
            peer.exchange.wait(0.005)


def certificates(folder: Path) -> Certificates:
    tls = loaded(folder).tls
    assert tls is not None
    return tls


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


def test_an_event_that_the_loop_makes_of_what_came_does_not_ring_for_the_loop() -> None:
    left, right = Peer(), Peer()
    came, right.exchange._on_frame = (
        right._came,
        lambda frame, end: (came(frame, end), right.mailbox.put("it"))[0],
    )
    left.send(right.exchange.address, b"x")
    deadline = time.monotonic() + WAIT_S
    while not right.frames:
        assert time.monotonic() < deadline
        left.exchange.wait(0)
        assert right.mailbox.sleep()
        right.exchange.wait(0.005)
        right.mailbox.wake()
    bell = select.poll()
    bell.register(right.mailbox, select.POLLIN)
    assert not bell.poll(0), "the next sleep would end at once, for nothing"
    for peer in (left, right):
        peer.close()


def test_both_sides_may_call(pair: tuple[Peer, Peer]) -> None:
    left, right = pair
    left.send(right.exchange.address, b"to the right")
    right.send(left.exchange.address, b"to the left")
    pump(*pair, until=lambda: bool(left.frames and right.frames))
    assert (left.batches(), right.batches()) == ([b"to the left"], [b"to the right"])


def test_who_was_called_answers_and_delivers_over_the_same_connection_in_one_frame(
    pair: tuple[Peer, Peer],
) -> None:
    left, right = pair
    left.send(right.exchange.address, b"to the right")
    pump(*pair, until=lambda: bool(right.frames))
    right.exchange.answer(right.frames[0][1]).acks.add(channel="c", target="t", epoch=1, index=0)
    right.send(left.exchange.address, b"to the left")
    pump(*pair, until=lambda: bool(left.frames))
    [(frame, _)] = left.frames
    assert (len(list(frame.acks)), left.batches()) == (1, [b"to the left"])


def test_who_delivers_to_a_caller_is_told_when_the_caller_is_gone() -> None:
    left, right = Peer(), Peer()
    left.send(right.exchange.address, b"x")
    pump(left, right, until=lambda: bool(right.frames))
    right.send(left.exchange.address, b"y")
    pump(left, right, until=lambda: bool(left.frames))
    left.close()
    pump(right, until=lambda: right.lost == [left.exchange.address])
    right.close()


def test_a_peer_that_calls_again_has_given_its_last_connection_up() -> None:
    left, right = Peer(), Peer()
    left.send(right.exchange.address, b"x")
    pump(left, right, until=lambda: bool(right.frames))
    right.send(left.exchange.address, b"perhaps lost")
    # A cut that only one side has noticed: nothing tells the other that its end is dead.
    left.exchange._peers.clear()
    left.send(right.exchange.address, b"again")
    pump(left, right, until=lambda: right.batches() == [b"x", b"again"])
    assert right.lost == [left.exchange.address]
    right.send(left.exchange.address, b"over the new one")
    pump(left, right, until=lambda: b"over the new one" in left.batches())
    for peer in (left, right):
        peer.close()


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


def test_the_loop_sleeps_for_less_than_a_millisecond() -> None:
    peer = Peer()
    if not peer.exchange._selectable:
        pytest.skip(
            "tests before this one left 1,024 files open in this process: select() takes none"
            " beyond"
        )
    slept: list[float] = []
    # others may have the cores
    while len(slept) < 30 or (min(slept) > 0.0009 and len(slept) < 10_000):
        began = time.monotonic()
        peer.exchange.wait(0.0002)
        slept.append(time.monotonic() - began)
    assert 0.0002 <= min(slept) < 0.0009
    peer.close()


def test_what_cannot_be_read_ends_the_connection_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
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


# mailbox.py


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


def test_a_mailbox_gives_what_was_put_in_order_and_no_more_than_asked() -> None:
    mailbox = Mailbox()
    for number in range(5):
        mailbox.put(number)
    assert (mailbox.take(2), mailbox.take(10), mailbox.take(10)) == ([0, 1], [2, 3, 4], [])
    mailbox.close()
