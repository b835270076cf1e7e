"""Compressed bytes as plain ones, up to the first damage.

The bytes in front of the damage are returned, and end at the same offset each time, for reads of
any size.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

_CHUNK_BYTES = 1 << 16  # of packed data
_GZIP, _MAGIC = 31, b"\x1f\x8b"  # Fixed: by the format
_FEW_BYTES = 1 << 10  # of a read that looks for the place of a damage
_BEHIND_THE_END = (
    "behind the end of the compressed data there are bytes that are not gzip; they are not read"
)
CUT_OFF = "the compressed file is cut off: its end is missing"


class Unpacking(Protocol):
    """A stream of plain bytes. ``damage`` is the reason why it ends early, "" if it does not; it is
    set once a read has returned fewer bytes than requested."""

    damage: str

    def read(self, size: int) -> bytes:
        """The next bytes; fewer than ``size`` only at the end."""

    def close(self) -> None: ...


class Gzip:
    """Members of gzip, one behind the other, and zero bytes behind them, as tapes and some writers
    leave them."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        weakref.finalize(self, packed.close)  # a reader may be dropped without being closed
        self._member: Any = None
        self._tail = b""
        self._begun = self._ended = False
        self.damage = ""

    def read(self, size: int) -> bytes:
        """See :class:`Unpacking`."""
        out = bytearray()
        while len(out) < size and not self._ended:
            if self._member is None and not self._begin_member():
                break
            out += self._some(size - len(out))
            if self._member.eof:
                self._tail, self._member = self._member.unused_data, None
        return bytes(out)

    def close(self) -> None:
        """Close the packed file."""
        self._packed.close()

    def _begin_member(self) -> bool:
        """Begin a member. False at the end of the file, and where other bytes follow."""
        # Zero bytes are padding, wherever they end: a member begins with others.
        self._tail = self._tail.lstrip(b"\0")
        while len(self._tail) < len(_MAGIC):
            more = self._packed.read(_CHUNK_BYTES)
            self._tail = (self._tail + more).lstrip(b"\0")
            if not more:
                break
        self._ended = not self._tail.startswith(_MAGIC)
        if self._tail and self._ended:
            self.damage = _BEHIND_THE_END if self._begun else "the file is not compressed by gzip"
        self._begun = True
        self._member = zlib.decompressobj(_GZIP)
        return not self._ended

    def _some(self, most: int) -> bytes:
        data, self._tail = self._tail or self._packed.read(_CHUNK_BYTES), b""
        if not data:
            self._ended, self.damage = True, CUT_OFF
            return b""
        before = self._member.copy()
        try:
            plain: bytes = self._member.decompress(data, most)
        except zlib.error as ex:
            self._ended, self.damage = True, f"the compressed file is damaged: {ex}"
            return _up_to_damage(before, data, most)
        self._tail = self._member.unconsumed_tail
        return plain


def _up_to_damage(member: Any, data: bytes, most: int) -> bytes:
    """The bytes that come out before the damage."""
    out = bytearray()
    for at in range(len(data)):
        try:
            out += member.decompress(data[at : at + 1])
        except zlib.error:
            break
    return bytes(out[:most])


class Unpacked:
    """Another compression, by Arrow. ``again`` opens the stream from its beginning."""

    def __init__(self, again: Callable[[], Any]) -> None:
        self._again = again
        self._stream = again()
        self._at = 0
        self.damage = ""

    def read(self, size: int) -> bytes:
        """See :class:`Unpacking`."""
        if self.damage:
            return b""
        try:
            content: bytes = self._stream.read(size)
        except OSError as ex:
            self.damage = _arrow_damage(ex)
            content = self._up_to_damage(size)
        self._at += len(content)
        return content

    def close(self) -> None:
        """Close the packed file."""
        self._stream.close()

    def _up_to_damage(self, size: int) -> bytes:
        """A read that fails gives nothing, so the damage is approached with ever smaller reads."""
        content = b""
        for step in (_FEW_BYTES, 1):
            self._stream.close()
            self._stream = self._again()
            self._skip(self._at + len(content))
            try:
                while len(content) < size and (
                    more := self._stream.read(min(step, size - len(content)))
                ):
                    content += more
            except OSError:
                continue
        return content

    def _skip(self, size: int) -> None:
        while size > 0 and (read := self._stream.read(min(size, _CHUNK_BYTES))):
            size -= len(read)


def _arrow_damage(ex: OSError) -> str:
    return CUT_OFF if "runcated" in str(ex) else f"the compressed file is damaged: {ex}"
