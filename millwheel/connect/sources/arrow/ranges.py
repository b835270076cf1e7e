"""Parquet files, whose pages are first examined and then decoded: local ones, and objects whose
ranges are fetched once for both."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millwheel.connect.sources.arrow.pages import ChunkSpan

# between two ranges that are fetched in one request: less than a request costs
_HOLE_BYTES = 64 << 10
_REQUEST_BYTES = 32 << 20  # of one request for several ranges


class LocalFile:
    """A file of this machine. ``file`` is the argument for Arrow."""

    buffered = False

    def __init__(self, path: str) -> None:
        self.file = pa.OSFile(path)

    def read_at(self, at: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``at`` on."""
        data: bytes = self.file.read_at(size, at)
        return data

    def expect(self, spans: Sequence[ChunkSpan]) -> None:
        """Announce the next reads."""


class KeptFile(io.RawIOBase):
    """An object as a file, which keeps the announced ranges until Arrow has read them: each byte is
    fetched once. Arrow reads it by ``read``, other code by :meth:`read_at`."""

    buffered = True

    def __init__(self, content: Any) -> None:
        self._content = content
        self._kept: dict[int, bytes] = {}  # by where they begin
        self._at = 0

    @property
    def file(self) -> KeptFile:
        """The argument for Arrow."""
        return self

    def expect(self, spans: Sequence[ChunkSpan]) -> None:
        """Fetch the ranges of the next reads, in few requests."""
        start = end = -1
        for span in sorted(spans):
            if self._piece(span.start, span.size) is not None or span.start < 0 or span.size <= 0:
                continue
            if (
                end < 0
                or span.start > end + _HOLE_BYTES
                or span.start + span.size - start > _REQUEST_BYTES
            ):
                self._keep(start, end)
                start = span.start
            end = max(end, span.start + span.size)
        self._keep(start, end)

    def read_at(self, at: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``at`` on."""
        piece = self._piece(at, size)
        return self._fetched(at, size) if piece is None else piece

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset if whence == io.SEEK_SET else self._at + offset
        if whence == io.SEEK_END:
            self._at = int(self._content.seek(offset, whence))
        return self._at

    def read(self, size: int = -1) -> bytes:
        parts = []
        remaining = (
            size if size >= 0 else max(int(self._content.seek(0, io.SEEK_END)) - self._at, 0)
        )
        while remaining:
            data = self._piece(self._at, remaining, most=True) or self._fetched(
                self._at, self._until_kept(remaining)
            )
            parts.append(data)
            self._at, remaining = self._at + len(data), remaining - len(data)
            if not data:
                break
        self._forget(self._at - sum(map(len, parts)), self._at)
        return b"".join(parts)

    def _keep(self, start: int, end: int) -> None:
        if start < end:
            self._kept[start] = self._fetched(start, end - start)

    def _fetched(self, at: int, size: int) -> bytes:
        self._content.seek(at)
        data: bytes = self._content.read(size)
        return data

    def _piece(self, at: int, size: int, most: bool = False) -> bytes | None:
        """The kept bytes from ``at`` on, all of them or as many as are kept (``most``); None if
        none are."""
        for start, data in self._kept.items():
            if start <= at < start + len(data) and (most or at + size <= start + len(data)):
                return data[at - start : at - start + size]
        return None

    def _until_kept(self, size: int) -> int:
        return min([size, *(start - self._at for start in self._kept if start > self._at)])

    def _forget(self, start: int, end: int) -> None:
        """Keep nothing that Arrow has read to its end."""
        self._kept = {
            at: data for at, data in self._kept.items() if not start < at + len(data) <= end
        }
