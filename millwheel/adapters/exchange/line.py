"""One open connection between two workers: frames out, frames in, and never a wait.

A frame is its length (4 bytes, little-endian) and a :class:`millwheel.pb.worker_pb2.Frame`.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from struct import Struct

MAX_FRAME_BYTES = 64 << 20
"""No frame is larger; senders cut their batches well below it."""
_LENGTH = Struct("<I")
_READ_BYTES = 256 << 10  # one read of a connection: several deliveries, and little memory for each worker
_TOGETHER_BYTES = 64 << 10  # smaller frames are joined and sent in one call
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Line:
    """A connected socket whose hello is over, made non-blocking. For one thread. Raises OSError when it is broken."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._tls = isinstance(connected, ssl.SSLSocket)
        self._out: deque[memoryview] = deque()
        self._in = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Queue a frame, and write as much as the kernel takes now."""
        if len(frame) < _TOGETHER_BYTES:
            self._out.append(memoryview(_LENGTH.pack(len(frame)) + frame))
        else:
            self._out += (memoryview(_LENGTH.pack(len(frame))), memoryview(frame))
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

    def receive(self) -> list[bytes]:
        """The frames that are complete by now."""
        while True:
            try:
                data = self._socket.recv(_READ_BYTES)
            except _NOT_NOW:
                break
            if not data:
                raise ConnectionError("the peer closed the connection")
            self._in += data
            if len(data) < _READ_BYTES and not self._tls:
                break  # a socket with more would have filled the buffer; TLS gives record by record
        return self._complete()

    def _complete(self) -> list[bytes]:
        got, frames, at = self._in, [], 0
        while len(got) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(got, at)
            if size > MAX_FRAME_BYTES:
                raise ConnectionError(f"the peer announced a frame of {size:,} bytes; the most is {MAX_FRAME_BYTES:,}")
            end = at + _LENGTH.size + size
            if len(got) < end:
                break
            frames.append(bytes(memoryview(got)[at + _LENGTH.size : end]))
            at = end
        if at:
            del got[:at]
        return frames

    def close(self) -> None:
        """Idempotent. Unwritten bytes are lost."""
        self._out.clear()
        self._socket.close()
