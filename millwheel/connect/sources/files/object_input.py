"""Objects as bytes at an offset, read in ranges of one version: plain, compressed, and as files for
Parquet."""

from __future__ import annotations

import io
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO, cast

from millwheel.adapters.spaces.object_store import ObjectStore
from millwheel.connect.sources.files.inputs import CompressedInput, InputPosition
from millwheel.errors import SetupError

BLOCK_BYTES = 8 << 20
"""The bytes of one request; the next block is requested while this one is decoded."""
# of the process; threads start when used
_AHEAD = ThreadPoolExecutor(max_workers=4, thread_name_prefix="objects")


class ObjectBytes:
    """One version of an object (``tag``), read by ranges. Two blocks are kept: the last one, and
    the one being fetched."""

    def __init__(self, store: ObjectStore, key: str, size: int, tag: str) -> None:
        self._store = store
        self._key = key
        self.size = size
        self._tag = tag
        self._at = -1
        self._block = b""
        self._next: tuple[int, Future[bytes]] | None = None

    def range(self, start: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``start``, one request. Raises ObjectChangedError for another
        version."""
        end = min(start + size, self.size)
        return self._store.read(self._key, start, end, self._tag) if start < end else b""

    def sequential(self, start: int, size: int) -> bytes:
        """As :meth:`range`, for reading forward."""
        parts = []
        while size > 0 and start < self.size:
            block, skip = self._of(start - start % BLOCK_BYTES), start % BLOCK_BYTES
            part = block[skip : skip + size]
            parts.append(part)
            start, size = start + len(part), size - len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Release the kept blocks."""
        if self._next is not None:
            self._next[1].cancel()
        self._next, self._at, self._block = None, -1, b""

    def _of(self, at: int) -> bytes:
        if at == self._at:
            return self._block
        ahead, self._next = self._next, None
        if ahead is not None and ahead[0] == at:
            self._block = ahead[1].result()
        else:
            self._block = self.range(at, BLOCK_BYTES)
        self._at = at
        if at + BLOCK_BYTES < self.size:
            self._next = (
                at + BLOCK_BYTES,
                _AHEAD.submit(self.range, at + BLOCK_BYTES, BLOCK_BYTES),
            )
        return self._block


class ObjectInput:
    """:class:`.PartitionInput` of an object."""

    def __init__(self, name: str, content: ObjectBytes) -> None:
        self._name = name
        self._content = content

    def locate(self, position: int) -> InputPosition:
        if position > self._content.size:
            raise SetupError(
                f"{self._name} has {self._content.size} bytes, but {position} were read before: it"
                " was replaced. Restore it, or start with a new root"
            )
        return InputPosition(0, position)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._content.sequential(offset, size)

    def ended(self) -> bool:
        return True

    def damage(self) -> str:
        return ""

    def close(self) -> None:
        self._content.close()


class CompressedObject(CompressedInput):
    """A gzip or zstd object."""

    def __init__(self, name: str, compression: str, content: ObjectBytes) -> None:
        self._content = content
        super().__init__(name, compression)

    def _packed(self) -> BinaryIO:
        return cast("BinaryIO", ObjectFile(self._content, ahead=True))


class ObjectFile(io.RawIOBase):
    """An object as a readable file. ``ahead``: it is read once, from start to end, so the next
    block is fetched early."""

    def __init__(self, content: ObjectBytes, ahead: bool = False) -> None:
        self._content = content
        self._read = content.sequential if ahead else content.range
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._content.size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        data = self._read(self._at, self._content.size - self._at if size < 0 else size)
        self._at += len(data)
        return data
