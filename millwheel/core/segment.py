"""How a journal looks as bytes.

    segment  =  header group*                       one file of the append form
    header   =  magic "MWSG", length u32, segment u64, number of its first group u64, check u64, journal's name
    group    =  magic "MWGR", entries u32, number u64, body length u64, body check u64, check u64, body
    body     =  entry lengths u32*, entries

Integers are little-endian; checks are xxh3-64, the last one of a head covering everything before it. Groups are
numbered from 1 through the whole journal without a gap. A group is complete or it is nothing: the bytes of a write that
was cut off fail a check, and decoding stops in front of them.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from millwheel.errors import CorruptionError, InvariantError

_check = xxhash.xxh3_64_intdigest
_GROUP_MAGIC, _HEADER_MAGIC = b"MWGR", b"MWSG"
_GROUP = struct.Struct("<4sIQQQ")
_HEADER = struct.Struct("<4sIQQ")
_CHECK = struct.Struct("<Q")
GROUP_HEAD = _GROUP.size + _CHECK.size
"""Bytes of a group in front of its body."""
_OFFSET_BITS = 40
MAX_SEGMENT_BYTES = 1 << _OFFSET_BITS
_MAX_ENTRY_BYTES = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Group:
    """One group commit, and the offset behind it."""

    entries: list[bytes]
    end: int


@dataclass(frozen=True, slots=True)
class Cut:
    """There is no complete group here. ``size`` is how many bytes it would have, as far as its head is here and right;
    0 when the bytes that are here are wrong."""

    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment says about itself, and the offset of its first group."""

    journal: str
    segment: int
    first_group: int
    end: int


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a journal. Segments count from 1; (0, 0) is the end of a journal that never had one."""

    segment: int
    offset: int

    def pack(self) -> int:
        """As one number in the same order."""
        return self.segment << _OFFSET_BITS | self.offset


def unpack_position(packed: int) -> Position:
    """The inverse of :meth:`Position.pack`."""
    return Position(packed >> _OFFSET_BITS, packed & (MAX_SEGMENT_BYTES - 1))


def encode_group(number: int, entries: Sequence[bytes]) -> list[bytes]:
    """A group as two pieces to be written one after the other, so that large bodies are copied only once."""
    lengths = array("I", map(len, entries))
    body = b"".join((lengths.tobytes(), *entries))
    head = _GROUP.pack(_GROUP_MAGIC, len(entries), number, len(body), _check(body))
    return [head + _CHECK.pack(_check(head)), body]


def check_entries(entries: Sequence[bytes]) -> None:
    """InvariantError for an entry that is too long for its length field."""
    for entry in entries:
        if len(entry) > _MAX_ENTRY_BYTES:
            raise InvariantError(f"one commit of {len(entry)} bytes is more than a journal entry can hold (4 GiB)")


def decode_group(data: bytes, offset: int, number: int) -> Group | Cut:
    """The group that must have ``number`` and begin at ``offset``. Pure: more ``data`` may complete what was cut."""
    start = offset + GROUP_HEAD
    if len(data) < start:
        return Cut(GROUP_HEAD, f"{len(data) - offset} bytes are less than a group's head")
    magic, count, found, length, body_check = _GROUP.unpack_from(data, offset)
    if magic != _GROUP_MAGIC or _CHECK.unpack_from(data, start - 8)[0] != _check(data[offset : start - 8]):
        return Cut(0, "the head of a group fails its check")
    if found != number:
        return Cut(0, f"group {found} stands where group {number} must be")
    end = start + length
    if len(data) < end:
        return Cut(end - offset, f"group {number} has only {len(data) - offset} of its {end - offset} bytes")
    body = memoryview(data)[start:end]
    if _check(body) != body_check:
        return Cut(0, f"the body of group {number} fails its check")
    entries = _entries(data, start, count, end)
    return Cut(0, f"the entries of group {number} do not fill it") if entries is None else Group(entries, end)


def _entries(data: bytes, start: int, count: int, end: int) -> list[bytes] | None:
    begin = start + 4 * count
    if begin > end:
        return None
    entries = []
    for length in array("I", data[start:begin]):
        entries.append(data[begin : begin + length])
        begin += length
    return entries if begin == end else None


def find_group(data: bytes, offset: int, number: int) -> int:
    """Where, from ``offset`` on, a complete group with ``number`` or a higher one begins; -1 if nowhere.

    One behind damaged bytes proves that they were durable once: a group is written only after the one before it.
    """
    while (offset := data.find(_GROUP_MAGIC, offset)) >= 0:
        if len(data) >= offset + GROUP_HEAD:
            found = _GROUP.unpack_from(data, offset)[2]
            if found >= number and isinstance(decode_group(data, offset, found), Group):
                return offset
        offset += 1
    return -1


def encode_header(journal: str, segment: int, first_group: int) -> bytes:
    """The first bytes of a segment. The name says whose it is, so that a file moved by hand is not taken for another."""
    name = journal.encode()
    fields = _HEADER.pack(_HEADER_MAGIC, len(name), segment, first_group)
    return fields + _CHECK.pack(_check(fields + name)) + name


def decode_header(data: bytes) -> SegmentHeader:
    """The inverse of :func:`encode_header`; CorruptionError when the bytes do not begin with a header."""
    start = _HEADER.size + _CHECK.size
    if len(data) < start:
        raise CorruptionError(f"{len(data)} bytes are less than a segment's header")
    magic, length, segment, first_group = _HEADER.unpack_from(data)
    name = data[start : start + length]
    check = _CHECK.unpack_from(data, _HEADER.size)[0]
    if magic != _HEADER_MAGIC or len(name) != length or check != _check(data[: _HEADER.size] + name):
        raise CorruptionError("the header of the segment fails its check")
    return SegmentHeader(name.decode(), segment, first_group, start + length)


def encode_end(packed: int) -> bytes:
    """The published end of a sealed journal, readable for people too."""
    text = b"%d" % packed
    return b"%b %016x\n" % (text, _check(text))


def decode_end(data: bytes) -> int:
    """The inverse of :func:`encode_end`; CorruptionError when the bytes are something else."""
    text, _, rest = data.partition(b" ")
    if not text.isdigit() or rest != b"%016x\n" % _check(text):
        raise CorruptionError("the published end of the sealed journal fails its check")
    return int(text)
