"""Blocks of Avro container files, unpacked a piece at a time: however many bytes a block claims, or
unpacks to, only as much of it is in memory as its reader asks for."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

from millwheel.connect.formats.avro.schema import Schema

SYNC_BYTES = 16  # Fixed: of Avro files
CODEC = "deflate"
"""The only codec, besides none, that each reader of Avro has."""
_MAGIC = b"Obj\x01"
_CHUNK_BYTES = 1 << 16  # of packed data
_WINDOW_BYTES = 1 << 20  # unpacked at once
_HEADER_BYTES = 16 << 20  # of the head of a file: its schema is in it
_LONGEST_NUMBER = 10  # Fixed: bytes of one
_MOST_RECORDS = 1 << 40  # of a block: their numbers stay within 64 bits
_MOST_AT_ONCE = 64 << 20  # bytes of a block in a codec that cannot be unpacked in pieces
_XZ_BYTES = 256 << 20  # of memory, as much as the packed data may ask for
_CRC_BYTES = 4  # Fixed: behind a block of snappy
_LZ4_HEAD_BYTES = 4  # Fixed: the length in front of a block of lz4
Packed = Callable[[int], bytes]
Plain = Callable[[int], bytes]
"""Returns up to so many next bytes; none at the end."""


class FileHead(NamedTuple):
    """The head of a file: the ``schema`` as JSON, the codec, the marker behind each block, and the
    offset of the first block."""

    schema: Schema
    codec: str
    sync: bytes
    end: int


class BlockSpan(NamedTuple):
    """The offset and size of the packed bytes of a block, the number of records that it claims, and
    the offset of the next block."""

    records: int
    start: int
    size: int
    end: int


def read_head(file: BinaryIO) -> FileHead:
    """The head of a file. Raises ValueError unless it is a container file."""
    file.seek(0)
    data = file.read(_CHUNK_BYTES)
    while True:
        try:
            return _head(data)
        except _ShortError:
            more = file.read(len(data)) if len(data) < _HEADER_BYTES else b""
            if not more:
                raise ValueError("its head is cut off, or is not Avro's") from None
            data += more


def read_span(file: BinaryIO, at: int, head: FileHead) -> BlockSpan | None:
    """The block that begins ``at``; None at the end of the file. Raises ValueError where it is
    damaged."""
    file.seek(at)
    data = file.read(2 * _LONGEST_NUMBER)
    if not data:
        return None
    try:
        records, used = _number(data, 0)
        size, used = _number(data, used)
    except _ShortError:
        raise ValueError("a block is cut off") from None
    start = at + used
    end = start + size + SYNC_BYTES
    if not 0 <= records <= _MOST_RECORDS or size < 0 or end > file.seek(0, os.SEEK_END):
        raise ValueError(f"a block claims {records} records in {size} bytes, which are not there")
    file.seek(start + size)
    if file.read(SYNC_BYTES) != head.sync:
        raise ValueError("the marker behind a block is another one")
    return BlockSpan(records, start, size, end)


def unpacked(file: BinaryIO, span: BlockSpan, codec: str) -> Plain:
    """The plain bytes of a block. Raises ValueError, or an error of the codec, where they are
    damaged."""
    at = span.start

    def packed(most: int) -> bytes:
        nonlocal at
        file.seek(at)
        data = file.read(min(most, span.start + span.size - at))
        at += len(data)
        return data

    return _CODECS[codec](packed, span.size)


class PlainWindow:
    """A part of the plain bytes of a block, from which values are decoded without a call for each
    piece of one. ``most`` bytes of one value are unpacked."""

    def __init__(self, plain: Plain, most: int) -> None:
        self._plain = plain
        self._most = most
        self._data = io.BytesIO()

    def decoded(self, decode: Callable[[io.BytesIO], Any]) -> tuple[Any, int] | None:
        """The next value, and its bytes; None for one that has more than ``most``. Raises the
        errors of ``decode`` or the codec for damaged values."""
        while True:
            at = self._data.tell()
            try:
                value = decode(self._data)
                return value, self._data.tell() - at
            except Exception:
                # It may be damaged, or end in the bytes that are still packed.
                self._data.seek(at)
                rest = self._data.read()
                if len(rest) > self._most:
                    return None
                # Never more than a value may have: whether one is too large must not depend on
                # those before it.
                more = self._unpack(min(max(_WINDOW_BYTES, len(rest)), self._most + 1 - len(rest)))
                if not more:
                    raise
                self._data = io.BytesIO(rest + more)

    def _unpack(self, size: int) -> bytes:
        parts: list[bytes] = []
        try:
            while size > 0 and (part := self._plain(size)):
                parts.append(part)
                size -= len(part)
        except Exception:
            if not parts:
                raise
        return b"".join(parts)


def _head(data: bytes) -> FileHead:
    if data[: len(_MAGIC)] != _MAGIC[: len(data)]:
        raise ValueError("it does not begin like one")
    meta: dict[bytes, bytes] = {}
    count, at = _number(data, len(_MAGIC))
    while count:
        if count < 0:  # a block of entries with its size
            _, at = _number(data, at)
        for _ in range(abs(count)):
            name, at = _text(data, at)
            meta[name], at = _text(data, at)
        count, at = _number(data, at)
    sync = data[at : at + SYNC_BYTES]
    if len(sync) < SYNC_BYTES:
        raise _ShortError
    codec = meta.get(b"avro.codec", b"null").decode("ascii", "replace")
    if codec not in _CODECS:
        raise ValueError(
            f"its codec {codec[:40]!r} is not read here; there are {', '.join(sorted(_CODECS))}"
        )
    return FileHead(json.loads(meta[b"avro.schema"]), codec, sync, at + SYNC_BYTES)


class _ShortError(Exception):
    """More bytes are needed."""


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_NUMBER):
        if at + index >= len(data):
            raise _ShortError
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + index + 1
    raise ValueError("a number has no end")


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _number(data, at)
    if size < 0:
        raise ValueError("a text has less than no bytes")
    if at + size > len(data):
        raise _ShortError
    return data[at : at + size], at + size


def _null(packed: Packed, size: int) -> Plain:
    return packed


def _deflate(packed: Packed, size: int) -> Plain:
    member, tail = zlib.decompressobj(-15), b""  # Fixed: Avro's deflate has no header

    def read(most: int) -> bytes:
        nonlocal tail
        while not member.eof and (data := tail or packed(_CHUNK_BYTES)):
            content = member.decompress(data, most)
            tail = member.unconsumed_tail
            if content:
                return content
        return b""

    return read


def _in_pieces(member: Any, packed: Packed) -> Plain:
    def read(most: int) -> bytes:
        while not member.eof:
            data = packed(_CHUNK_BYTES) if member.needs_input else b""
            if member.needs_input and not data:
                return b""
            content: bytes = member.decompress(data, most)
            if content:
                return content
        return b""

    return read


def _bzip2(packed: Packed, size: int) -> Plain:
    return _in_pieces(bz2.BZ2Decompressor(), packed)


def _xz(packed: Packed, size: int) -> Plain:
    return _in_pieces(lzma.LZMADecompressor(memlimit=_XZ_BYTES), packed)


def _zstandard(packed: Packed, size: int) -> Plain:
    import pyarrow as pa

    stream = pa.CompressedInputStream(pa.PythonFile(_Reading(packed), "r"), "zstd")
    return lambda most: bytes(stream.read(most))


class _Reading(io.RawIOBase):
    def __init__(self, packed: Packed) -> None:
        self._packed = packed

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._packed(size)


def _snappy(packed: Packed, size: int) -> Plain:
    data = packed(min(size, 2 * _MOST_AT_ONCE))[:-_CRC_BYTES]
    plain, shift = 0, 0
    for byte in data[:5]:  # Fixed: bytes of the length in front
        plain |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return _at_once("snappy", data, plain, size)


def _lz4(packed: Packed, size: int) -> Plain:
    data = packed(min(size, 2 * _MOST_AT_ONCE))
    plain = int.from_bytes(data[:_LZ4_HEAD_BYTES], "little")
    return _at_once("lz4_raw", data[_LZ4_HEAD_BYTES:], plain, size)


def _at_once(codec: str, data: bytes, plain: int, size: int) -> Plain:
    import pyarrow as pa

    if plain > _MOST_AT_ONCE or size > 2 * _MOST_AT_ONCE:
        raise ValueError(
            f"a block unpacks to more than {_MOST_AT_ONCE >> 20} MiB; write it with smaller blocks"
        )
    return io.BytesIO(pa.decompress(data, plain, codec=codec, asbytes=True)).read


_CODECS: dict[str, Callable[[Packed, int], Plain]] = {
    "null": _null,
    "deflate": _deflate,
    "bzip2": _bzip2,
    "xz": _xz,
    "zstandard": _zstandard,
    "snappy": _snappy,
    "lz4": _lz4,
}
