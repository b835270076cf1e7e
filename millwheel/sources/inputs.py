"""Files as bytes at an offset: plain, growing, or compressed.

A reader asks for bytes by position. For a plain file a position is an offset; for a followed file the bits from
``GENERATION`` upward count how often the file was replaced; for a compressed file it is an offset in what the
file holds once decompressed.
"""

from __future__ import annotations

import logging
import os
from typing import Protocol

from millwheel.errors import SetupError

log = logging.getLogger(__name__)

GENERATION = 1 << 48
"""Positions of the n-th file under one followed name begin at n times this."""
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_BLOCK = 1 << 18


class Input(Protocol):
    """The bytes of one partition."""

    def locate(self, position: int) -> tuple[int, int]:
        """(base, offset): bytes from ``offset`` on come next, and their positions are ``base`` + offset."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only where the input ends now."""

    def ended(self) -> bool:
        """True when what ``read_at`` could not give will never come, so that an unterminated line is complete."""

    def damage(self) -> str:
        """Why the bytes end before their time, "" when they do not."""

    def close(self) -> None: ...


def open_input(path: str, follow: bool) -> Input:
    """Raises SetupError when the file cannot be read (a followed one may appear later)."""
    if follow:
        return FollowedInput(path)
    if compression := compression_of(path):
        return CompressedInput(path, compression)
    return PlainInput(path)


def compression_of(path: str) -> str:
    """The name of the compression by the file's ending, "" for none."""
    return _COMPRESSIONS.get(os.path.splitext(path)[1].lower(), "")


def cannot_read(path: str, error: OSError) -> SetupError:
    """The error for an input file that cannot be read."""
    return SetupError(f"cannot read the input file {path}: {error.strerror or error}; check its path and permissions")


class PlainInput:
    """A file that does not change. Raises SetupError when it has become shorter than what was read."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except OSError as ex:
            raise cannot_read(path, ex) from ex

    def locate(self, position: int) -> tuple[int, int]:
        if position > (size := os.fstat(self._fd).st_size):
            raise SetupError(
                f"the input file {self._path} has {size} bytes, but {position} were read before: it was changed. "
                "Restore it, start with a new root, or write follow: true for files that change"
            )
        return 0, position

    def read_at(self, offset: int, size: int) -> bytes:
        try:
            return read_fully(self._fd, offset, size)
        except OSError as ex:
            raise cannot_read(self._path, ex) from ex

    def ended(self) -> bool:
        return True

    def damage(self) -> str:
        return ""

    def close(self) -> None:
        os.close(self._fd)


class FollowedInput:
    """A file that grows, and that may be replaced or truncated by whoever rotates logs.

    As ``tail -F`` does: once the open file is read to its end and the name holds another, non-empty file, or the file
    has become shorter than what was read, reading begins again at its start, under higher positions, with a
    warning in the log. Two limits follow. What was read but not yet committed when a file vanished is lost if the
    worker dies in that moment; and a file that was replaced while nobody read it is only known by being shorter
    than what was read, or by having no line end there. Where that matters, let every file have its own name.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._fresh = self._replaced = False

    def locate(self, position: int) -> tuple[int, int]:
        base, offset = position - position % GENERATION, position % GENERATION
        if self._fd < 0 and not self._open():
            return base, offset
        size = os.fstat(self._fd).st_size
        self._replaced = size <= offset and self._has_successor()
        if size < offset or (self._replaced and size == offset) or self._strange(offset):
            self._begin_again(size, offset)
            return base + GENERATION, 0
        return base, offset

    def read_at(self, offset: int, size: int) -> bytes:
        return read_fully(self._fd, offset, size) if self._fd >= 0 else b""

    def ended(self) -> bool:
        self._replaced = self._replaced or self._has_successor()
        return self._replaced

    def damage(self) -> str:
        return ""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _strange(self, offset: int) -> bool:
        """True when a file that was just opened has no line end where reading stopped."""
        fresh, self._fresh = self._fresh, False
        return fresh and offset > 0 and os.pread(self._fd, 1, offset - 1) != b"\n"

    def _open(self) -> bool:
        self._fresh = True
        try:
            self._fd = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError as ex:
            raise cannot_read(self._path, ex) from ex
        return True

    def _has_successor(self) -> bool:
        """True when the name holds another file that somebody has begun to write."""
        if self._fd < 0:
            return False
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        ours = os.fstat(self._fd)
        return (there.st_ino, there.st_dev) != (ours.st_ino, ours.st_dev) and there.st_size > 0

    def _begin_again(self, size: int, offset: int) -> None:
        what = f"has shrunk to {size} bytes after {offset} had been read" if size < offset else "was replaced"
        log.warning("the followed file %s %s; reading begins again at its start", self._path, what)
        self._replaced = False
        self.close()
        self._open()


class CompressedInput:
    """A gzip or zstd file, read forward in blocks of one size, so that damage is met at the same place each time."""

    def __init__(self, path: str, compression: str) -> None:
        self._path = path
        self._compression = compression
        self._damage = ""
        self._restart()

    def locate(self, position: int) -> tuple[int, int]:
        return 0, position

    def read_at(self, offset: int, size: int) -> bytes:
        if offset < self._start:
            self.close()
            self._restart()
        while self._start + len(self._buffer) < offset + size and self._more(offset):
            pass
        place = offset - self._start
        return bytes(self._buffer[place : place + size])

    def ended(self) -> bool:
        return True

    def damage(self) -> str:
        return self._damage

    def close(self) -> None:
        self._stream.close()

    def _restart(self) -> None:
        import pyarrow as pa

        try:
            self._stream = pa.input_stream(self._path, compression=self._compression, buffer_size=0)
        except OSError as ex:
            raise cannot_read(self._path, ex) from ex
        self._start = 0
        self._buffer = bytearray()
        self._ended = False

    def _more(self, wanted: int) -> bool:
        """One more block; what lies before ``wanted`` is dropped. False at the end."""
        if self._ended:
            return False
        try:
            block = self._stream.read(_BLOCK)
        except OSError as ex:
            self._ended, self._damage = True, f"the compressed file is damaged or cut off: {ex}"
            return False
        self._ended = len(block) < _BLOCK
        self._buffer += block
        drop = min(max(wanted - self._start, 0), len(self._buffer))
        del self._buffer[:drop]
        self._start += drop
        return not self._ended or bool(block)


def read_fully(fd: int, offset: int, size: int) -> bytes:
    """``size`` bytes at ``offset``, fewer only at the end of the file."""
    data = os.pread(fd, size, offset)
    while 0 < len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data
