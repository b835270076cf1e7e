"""Files as bytes at an offset: plain, or compressed (growing ones are in
:mod:`millwheel.connect.sources.files.rotation`).

A reader asks for bytes by position. For a plain file a position is an offset; for a compressed file
it is an offset in the decompressed data.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from millwheel.connect.sources.files.compression import Gzip, Unpacked, Unpacking
from millwheel.errors import ExhaustedError, SetupError

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_BLOCK_BYTES = 1 << 18  # bytes that are unpacked at once


@dataclass(frozen=True, slots=True)
class InputPosition:
    """The bytes from ``offset`` on come next, at positions ``base`` + offset; another ``life``
    means another file. Otherwise there are none: with ``begins`` (position, note), until that
    decision is durable; with ``skip_to``, until the reader continues there; with ``nothing``, at
    the moment."""

    base: int = 0
    offset: int = 0
    life: int = 1
    begins: tuple[int, bytes] | None = None
    skip_to: int = -1
    nothing: bool = False


NOTHING = InputPosition(nothing=True)


class PartitionInput(Protocol):
    """The bytes of one partition."""

    def locate(self, position: int) -> InputPosition:
        """The bytes after a position."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only where the input ends now."""

    def ended(self) -> bool:
        """True when no bytes will follow those that ``read_at`` returns, so an unterminated line is
        complete."""

    def damage(self) -> str:
        """The reason why the input ends early, "" when it does not."""

    def close(self) -> None: ...


def open_input(path: str) -> PartitionInput:
    """Open a file by its compression. Raises SetupError when it cannot be read, ExhaustedError when
    too many files are open at the moment."""
    if compression := compression_of(path):
        return CompressedInput(path, compression)
    return PlainInput(path)


def compression_of(path: str) -> str:
    """The name of the compression by the file's ending, "" for none."""
    return _COMPRESSIONS.get(os.path.splitext(path)[1].lower(), "")


def cannot_read(path: str, error: OSError) -> SetupError | ExhaustedError:
    """The error for an unreadable input file: permanent (SetupError) or temporary
    (ExhaustedError)."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return ExhaustedError(
            f"cannot open {path}: {error.strerror}; retrying every second; other files are read"
            " meanwhile. Raise the limit of open files (ulimit -n)"
        )
    return SetupError(
        f"cannot read the input file {path}: {error.strerror or error}; check its path and"
        " permissions"
    )


class PlainInput:
    """A file that does not change. Raises SetupError when it has become shorter than the part
    already read."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except OSError as ex:
            raise cannot_read(path, ex) from ex

    def locate(self, position: int) -> InputPosition:
        if position > (size := os.fstat(self._fd).st_size):
            raise SetupError(
                f"the input file {self._path} has {size} bytes, but {position} were read before: it"
                " was changed. Restore it, start with a new root, or write follow: true for files"
                " that change"
            )
        return InputPosition(0, position)

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


class CompressedInput:
    """A gzip or zstd file, read forward."""

    def __init__(self, path: str, compression: str) -> None:
        self._path = path
        self._compression = compression
        self._restart()

    def locate(self, position: int) -> InputPosition:
        return InputPosition(0, position)

    def read_at(self, offset: int, size: int) -> bytes:
        if offset < self._start:
            self.close()
            self._restart()
        while self._start + len(self._buffer) < offset + size and self._more(offset):
            pass
        start = offset - self._start
        return bytes(self._buffer[start : start + size])

    def ended(self) -> bool:
        return True

    def damage(self) -> str:
        return self._stream.damage

    def close(self) -> None:
        self._stream.close()

    def _restart(self) -> None:
        try:
            self._stream = self._unpacking()
        except OSError as ex:
            raise cannot_read(self._path, ex) from ex
        self._start = 0
        self._buffer = bytearray()
        self._ended = False

    def _unpacking(self) -> Unpacking:
        if self._compression == "gzip":
            return Gzip(self._packed())
        import pyarrow as pa

        return Unpacked(
            lambda: pa.CompressedInputStream(
                pa.PythonFile(self._packed(), mode="r"), self._compression
            )
        )

    def _packed(self) -> BinaryIO:
        return open(self._path, "rb", buffering=0)

    def _more(self, position: int) -> bool:
        """Decompress one more block, and drop the data before ``position``. False at the end."""
        if self._ended:
            return False
        try:
            block = self._stream.read(_BLOCK_BYTES)
        except OSError as ex:
            raise cannot_read(self._path, ex) from ex
        self._ended = len(block) < _BLOCK_BYTES
        self._buffer += block
        drop = min(max(position - self._start, 0), len(self._buffer))
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
