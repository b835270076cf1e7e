"""One open connection between two workers: frames out, frames in, and never a wait.

A frame is its length (4 bytes, little-endian) and a
:class:`millwheel.adapters.pb.worker_pb2.Frame`.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Sequence
from struct import Struct

import numpy as np

from millwheel.adapters.exchange.frames import Buffer

MAX_FRAME_BYTES = 64 << 20
"""No frame is larger; senders cut their batches well below it."""
_LENGTH = Struct("<I")
# one read of a connection: several deliveries, and little memory for each worker
_READ_BYTES = 256 << 10
_TOGETHER_BYTES = 64 << 10  # smaller pieces are joined and sent in one call
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Line:
    """A connected socket whose hello is over, made non-blocking. For one thread. Raises OSError
    when it is broken."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._tls = isinstance(connected, ssl.SSLSocket)
        self._out: deque[memoryview] = deque()
        self._in = bytearray()
        self._large: memoryview | None = None
        """The frame that is coming, if it is longer than one read, and how much of it is there."""
        self._there = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: Sequence[bytes]) -> None:
        """Queue a frame, given in pieces, and write as much as the kernel takes now."""
        few = [_LENGTH.pack(sum(map(len, frame)))]
        for piece in frame:
            if len(piece) < _TOGETHER_BYTES:
                few.append(piece)
                continue
            self._out += (memoryview(b"".join(few)), memoryview(piece))
            few = []
        if few:
            self._out.append(memoryview(b"".join(few)))
        self.write()

    def write(self) -> None:
        """Write the bytes that the kernel did not take earlier."""
        out = self._out
        try:
            while out:
                sent = self._socket.send(out[0])
                if sent == len(out[0]):
                    out.popleft()
                else:
                    out[0] = out[0][sent:]
        except _NOT_NOW:
            pass

    @property
    def waits_to_write(self) -> bool:
        """True while something is queued that the kernel did not take."""
        return bool(self._out)

    def receive(self) -> list[Buffer]:
        """The frames that are complete by now."""
        frames: list[Buffer] = []
        while True:
            try:
                capacity, got = self._receive(frames)
            except _NOT_NOW:
                break
            if not got:
                raise ConnectionError("the peer closed the connection")
            if got < capacity and not self._tls:
                break  # a socket with more would have filled the buffer; TLS gives record by record
        return frames

    def _receive(self, frames: list[Buffer]) -> tuple[int, int]:
        """Read once: how many bytes there was room for, and how many came."""
        if self._large is None:
            data = self._socket.recv(_READ_BYTES)
            self._in += data
            self._complete(frames)
            return _READ_BYTES, len(data)
        # A long frame goes where it stays: its bytes are not copied from reads.
        capacity = len(self._large) - self._there
        got = self._socket.recv_into(self._large[self._there :])
        self._there += got
        if got == capacity:
            frames.append(self._large)
            self._large = None
        return capacity, got

    def _complete(self, frames: list[Buffer]) -> None:
        """Split the bytes read into frames; the rest is the beginning of the next one."""
        got, at = self._in, 0
        while len(got) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(got, at)
            if size > MAX_FRAME_BYTES:
                raise ConnectionError(
                    f"the peer announced a frame of {size:,} bytes; the most is {MAX_FRAME_BYTES:,}"
                )
            begin, end = at + _LENGTH.size, at + _LENGTH.size + size
            if len(got) >= end:
                frames.append(bytes(memoryview(got)[begin:end]))
            elif size >= _READ_BYTES:
                self._large, self._there = np.empty(size, np.uint8).data, len(got) - begin
                self._large[: self._there] = memoryview(got)[begin:]
                end = len(got)
            else:
                break
            at = end
        if at:
            del got[:at]

    def close(self) -> None:
        """Idempotent. Unwritten bytes are lost."""
        self._out.clear()
        self._socket.close()
