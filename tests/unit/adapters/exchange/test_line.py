from __future__ import annotations

import os
import socket
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millwheel.adapters.exchange.handshake import dial
from millwheel.adapters.exchange.line import MAX_FRAME_BYTES, Line
from tests.unit.adapters.exchange.test_exchange import WAIT_S, Peer


def test_a_frame_longer_than_any_is_not_waited_for() -> None:
    peer = Peer()
    with dial(peer.exchange.address) as caller:
        caller.sendall((MAX_FRAME_BYTES + 1).to_bytes(4, "little"))
        caller.settimeout(0.01)
        assert hung_up(peer, caller)
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
    max_examples=int(os.environ.get("MILLWHEEL_FUZZ", "60")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_are_frames_or_the_end_of_the_line(pieces: list[bytes]) -> None:
    ours, caller = socket.socketpair()
    line, got = Line(ours), b""
    with caller:
        try:
            for piece in pieces:
                caller.sendall(piece)
                got += b"".join(
                    len(frame).to_bytes(4, "little") + frame for frame in line.receive()
                )
        except ConnectionError:
            assert any(piece for piece in pieces)
    assert b"".join(pieces).startswith(got), "what is given out is what came, in order"
    line.close()
