"""Messages between a driver and its warm parent (``warm_parent.py``): one message, one packet."""

from __future__ import annotations

import ctypes
import os
import select
import socket
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

_MOST_BYTES = 1 << 17  # of a message between driver and parent
SHARED = "shared"
"""The argument of a warm parent that is passed lines."""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Fork a child that goes on as ``python -m module argv…``. ``number`` names it from here on;
    standard error and output are appended to these files."""

    number: int
    module: str
    argv: Sequence[str]
    err: str
    out: str


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Send a signal to a child; nothing happens if it has ended."""

    number: int
    signal: int


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The child is there, under this process id."""

    number: int
    pid: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The child has ended. ``code`` is as in :mod:`subprocess`: negative for a signal."""

    number: int
    code: int


class Cold(msgspec.Struct, frozen=True, tag="cold"):
    """The parent may not fork: the driver must execute this child instead."""

    number: int
    reason: str


Request = Start | Signal
Report = Started | Ended | Cold

encode = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(Request).decode
decode_report = msgspec.json.Decoder(Report).decode


def line() -> tuple[socket.socket, socket.socket]:
    """The two ends of a connection between a process and its child, which preserves packets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def receive(end: socket.socket) -> bytes:
    """The next packet, b"" when the other end is gone. Raises BlockingIOError when there is none
    yet."""
    try:
        return end.recv(_MOST_BYTES, socket.MSG_DONTWAIT)
    except ConnectionError:
        return b""


def passed_line(shared: int) -> socket.socket:
    """A line to the warm parent behind the file descriptor ``shared``, which is passed its other
    end. Raises OSError when the parent is gone."""
    ours, theirs = line()
    with theirs, socket.socket(fileno=os.dup(shared)) as parent:
        socket.send_fds(parent, [b"line"], [theirs.fileno()])
    return ours


def received_line(end: socket.socket) -> socket.socket | None:
    """A line that was passed on; None when its sender is gone."""
    data, descriptors, _, _ = socket.recv_fds(end, _MOST_BYTES, 1)
    return socket.socket(fileno=descriptors[0]) if data else None


def ready(descriptors: Collection[int], wait_s: float | None = None) -> set[int]:
    """The file descriptors that can be read, after ``wait_s`` at most (None: as long as it takes).
    A driver may have more than a thousand files open, which ``select`` does not take."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poller.poll(None if wait_s is None else wait_s * 1000)}


ROOM = "-" * 1_000
"""An argument of a process that will show another command line later: it reserves the space for
it."""

_ARG_START, _ARG_END = 47, 48
"""Fields of /proc/self/stat, from 0."""


def show_as(command: Sequence[str]) -> bool:
    """Show this process under another command line, truncated to the available space. False where
    the system does not allow it."""
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    # the first two end with the bracket
    start, end = (int(fields[number - 2]) for number in (_ARG_START, _ARG_END))
    if not 0 < start < end:
        return False
    line = b"".join(word.encode() + b"\0" for word in command)[: end - start - 1]
    ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)
    return True
