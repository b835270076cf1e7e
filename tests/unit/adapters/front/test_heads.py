from __future__ import annotations

import socket

import pytest

from millwheel.adapters.front.heads import read_head


def test_a_head_is_read_whatever_its_pieces_are() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_head(right, 100) == b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHo", b"", b"x" * 200])
def test_half_a_head_and_one_without_an_end_are_refused(sent: bytes) -> None:
    left, right = socket.socketpair()
    with right:
        with left:
            left.sendall(sent)
        with pytest.raises(ConnectionError):
            read_head(right, 100)
