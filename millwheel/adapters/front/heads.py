"""The head of a request, read from a socket by a thread."""

from __future__ import annotations

import socket

_READ_BYTES = 4096  # of one read: nearly every head comes in one piece
_ENDS = (b"\r\n\r\n", b"\n\n")


def read_head(connection: socket.socket, most_bytes: int) -> bytes:
    """Everything up to the empty line behind the head, and whatever came with it. Raises OSError if the client hangs up
    before, or sends more than ``most_bytes``."""
    head = b""
    while not any(end in head for end in _ENDS):
        more = connection.recv(_READ_BYTES)
        if not more:
            raise ConnectionError("it hung up within the head of its request")
        head += more
        if len(head) > most_bytes:
            raise ConnectionError(f"the head of its request has more than {most_bytes} bytes")
    return head
