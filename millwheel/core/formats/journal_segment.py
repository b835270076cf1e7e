"""The byte format of a journal.

    segment  = header, group, group, ..., zeros (room for further groups, perhaps none)
    header   = magic, kind, segment number, first group number, put-id, name of the incarnation,
             checksum
    group    = magic, length of the body, group number, checksum, body
    body     = count, count lengths, the entries one after the other

Groups are numbered from 1 through the whole journal, so that a missing one is detected. The
checksum of a group is seeded with the header's, which holds a put-id that is unique: bytes of
another segment or of an older file in the same blocks never pass for a group of this one.

Behind the groups of a segment may stand zeros, over which the next groups would have been written.
Groups that became zeros by damage are detected all the same: the next segment names its first
group, and a sealed end its offset.

A writer makes a group durable before it starts the next. Therefore only the last group of the last
segment can be torn, and an invalid group with a valid one behind it is damage, never a torn tail.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise

from xxhash import xxh3_64, xxh3_64_intdigest

from millwheel.errors import CorruptionError, invariant

MAX_BODY = 1 << 30  # Fixed: bytes of one group; longer ones are damage
PUT_ID_BYTES = 16  # Fixed: of the format
MAX_NAME = 255  # Fixed: of the format

_HEADER_MAGIC = b"MWJRNL1\n"
_HEADER = struct.Struct(f"<8sBQQ{PUT_ID_BYTES}sH")
_GROUP_MAGIC = b"\xf7MWg"
_GROUP = struct.Struct("<4sIQQ")
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_MASK = (1 << 64) - 1  # Fixed: 64 bits
_SPREAD = 0x9E3779B97F4A7C15  # Fixed: of the format, spreads the seeds of checksums
_OFFSET_BITS = 40  # Fixed: of the format, a segment is below 1 TB
_END_WORDS = 7  # Fixed: of the format of a seal

GROUP_HEADER_BYTES = _GROUP.size
HEADER_BYTES = _HEADER.size + MAX_NAME + _U64.size
"""The length of the longest header."""


class SegmentKind(IntEnum):
    """The kind of a journal's file."""

    DATA = 0
    SEAL = 1


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The head of a file. ``put_id`` is unique to one attempt to create it; ``first_group`` is the
    number of the first group in it."""

    incarnation: str
    segment: int
    first_group: int
    put_id: bytes
    kind: SegmentKind = SegmentKind.DATA


@dataclass(frozen=True, slots=True)
class OpenedSegment:
    """A header as read: groups start at ``start`` and are checked with ``seed``."""

    header: SegmentHeader
    start: int
    seed: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """The valid groups at the start of a segment: the spans of their bodies, their end, and the
    number of the next group."""

    bodies: Sequence[tuple[int, int]]
    end: int
    next_group: int


@dataclass(frozen=True, slots=True, order=True)
class JournalEnd:
    """A position in a journal: everything before ``offset`` of ``segment``, and all earlier
    segments."""

    segment: int
    offset: int

    def packed(self) -> int:
        """One int that orders as these positions do, for ``upto`` of the journals port."""
        # A longer offset would run into the number of the segment, and move the end.
        invariant(0 <= self.offset < 1 << _OFFSET_BITS, f"{self} lies behind its segment")
        return self.segment << _OFFSET_BITS | self.offset


@dataclass(frozen=True, slots=True, order=True)
class JournalPosition:
    """A position between two groups of a journal that is being followed: ``group`` comes next, at
    ``offset`` of ``segment`` (0: at its beginning; there, group 0 stands for whichever is the
    first)."""

    segment: int
    offset: int
    group: int


def unpack_end(packed: int) -> JournalEnd:
    """The inverse of :meth:`JournalEnd.packed`."""
    # Below 0 stands for no end, in a journal that still grows.
    invariant(packed >= 0, f"{packed} is not an end of a journal")
    return JournalEnd(packed >> _OFFSET_BITS, packed & ((1 << _OFFSET_BITS) - 1))


# --- headers


def encode_header(header: SegmentHeader) -> bytes:
    """The bytes a segment starts with."""
    name = header.incarnation.encode()
    invariant(
        len(header.put_id) == PUT_ID_BYTES and len(name) <= MAX_NAME,
        f"{header} cannot head a segment",
    )
    fixed = _HEADER.pack(
        _HEADER_MAGIC, header.kind, header.segment, header.first_group, header.put_id, len(name)
    )
    return fixed + name + _U64.pack(xxh3_64_intdigest(fixed + name))


def decode_header(data: bytes) -> OpenedSegment:
    """The header at the start of ``data``; CorruptionError with the reason when there is none.

    A header is written before its file gets its name, so it is never torn.
    """
    if len(data) < _HEADER.size + _U64.size:
        raise CorruptionError(f"only {len(data)} bytes, too few for a header")
    magic, kind, segment, first_group, put_id, name_length = _HEADER.unpack_from(data)
    if magic != _HEADER_MAGIC:
        raise CorruptionError(f"it starts with {magic!r}, which is not a journal of this version")
    end = _HEADER.size + name_length
    if len(data) < end + _U64.size:
        raise CorruptionError("its header is cut off")
    (seed,) = _U64.unpack_from(data, end)
    if seed != xxh3_64_intdigest(data[:end]):
        raise CorruptionError("its header fails its checksum")
    try:
        header = SegmentHeader(
            data[_HEADER.size : end].decode(), segment, first_group, put_id, SegmentKind(kind)
        )
    except ValueError as ex:
        raise CorruptionError(
            f"its header passes its checksum, but its content is impossible: {ex}"
        ) from ex
    return OpenedSegment(header, end + _U64.size, seed)


# --- groups


def encode_group(seed: int, number: int, entries: Sequence[bytes]) -> bytes:
    """One group commit. ``seed`` is that of the segment's header."""
    lengths = [*map(len, entries)]
    size = _U32.size + 4 * len(lengths) + sum(lengths)
    invariant(
        size <= MAX_BODY,
        f"a group commit of {size} bytes is over the {MAX_BODY} that a journal takes: cut it up",
    )
    parts = (_U32.pack(len(entries)), array("I", lengths).tobytes(), *entries)
    checksum = xxh3_64(seed=_seed(size, seed, number))
    for part in parts:  # joined once, with the head: groups may be large
        checksum.update(part)
    return b"".join((_GROUP.pack(_GROUP_MAGIC, size, number, checksum.intdigest()), *parts))


def _checksum(body: bytes | memoryview, seed: int, number: int) -> int:
    return xxh3_64_intdigest(body, _seed(len(body), seed, number))


def _seed(size: int, seed: int, number: int) -> int:
    return (seed + number * _SPREAD + size) & _MASK


def valid_prefix(data: bytes, opened: OpenedSegment, stop: int | None = None) -> Prefix:
    """The groups from the start of the segment up to the first that is not whole (or to byte
    ``stop``)."""
    view, seed, unpack, head = memoryview(data), opened.seed, _GROUP.unpack_from, _GROUP.size
    limit = len(data) if stop is None else min(stop, len(data))
    bodies: list[tuple[int, int]] = []
    at, number = opened.start, opened.header.first_group
    # The same test as _group_end, written out: it runs for every commit of a journal while its
    # shards wait.
    while (body := at + head) <= limit:
        magic, length, group_number, checksum = unpack(data, at)
        end = body + length
        if magic != _GROUP_MAGIC or group_number != number or length > MAX_BODY or end > limit:
            break
        if (
            xxh3_64_intdigest(view[body:end], (seed + number * _SPREAD + length) & _MASK)
            != checksum
        ):
            break
        bodies.append((body, end))
        at, number = end, number + 1
    return Prefix(bodies, at, number)


def _group_end(view: memoryview, at: int, limit: int, seed: int, number: int) -> int:
    """The end of the group at ``at`` if it is whole and has this number, else -1."""
    body = at + _GROUP.size
    if body > limit:
        return -1
    magic, length, group_number, checksum = _GROUP.unpack_from(view, at)
    end = body + length
    if magic != _GROUP_MAGIC or group_number != number or length > MAX_BODY or end > limit:
        return -1
    return end if _checksum(view[body:end], seed, number) == checksum else -1


def find_later_group(data: bytes, opened: OpenedSegment, prefix: Prefix) -> int:
    """The offset of a valid group behind the valid prefix, or -1. If there is one, the bytes
    between are damaged."""
    view, limit = memoryview(data), len(data)
    at = data.find(_GROUP_MAGIC, prefix.end)
    while 0 <= at <= limit - _GROUP.size:
        number = _GROUP.unpack_from(view, at)[2]
        # A group takes at least its header, which bounds the numbers that can be found here.
        plausible = (
            prefix.next_group <= number <= prefix.next_group + (at - prefix.end) // _GROUP.size + 1
        )
        if plausible and _group_end(view, at, limit, opened.seed, number) > 0:
            return at
        at = data.find(_GROUP_MAGIC, at + 1)
    return -1


def is_room(data: bytes, at: int) -> bool:
    """Whether only zeros, which will be written over, stand behind this offset."""
    return data.count(0, at) == len(data) - at


def decode_entries(data: bytes, body: tuple[int, int]) -> list[bytes]:
    """The entries of one group of a :class:`Prefix`, in order."""
    start, end = body
    if end - start < _U32.size:
        raise CorruptionError(
            f"a group of {end - start} bytes at offset {start} holds no entry count"
        )
    (count,) = _U32.unpack_from(data, start)
    first = start + _U32.size + 4 * count
    lengths = array("I")
    if first <= end:
        lengths.frombytes(data[start + _U32.size : first])
    edges = list(accumulate(lengths, initial=first))
    if edges[-1] != end:
        raise CorruptionError(f"the {count} entries of the group at offset {start} do not fill it")
    return [data[low:high] for low, high in pairwise(edges)]


# --- the published end of a sealed journal


def encode_sealed_end(incarnation: str, end: JournalEnd) -> bytes:
    """The content of the file that publishes where a sealed journal ends: one line of text."""
    text = f"{incarnation} ends at segment {end.segment} offset {end.offset}"
    return f"{text} {xxh3_64_intdigest(text.encode()):016x}\n".encode()


def decode_sealed_end(data: bytes) -> JournalEnd:
    """The inverse of :func:`encode_sealed_end`; CorruptionError when the text fails its
    checksum."""
    text, _, checksum = data.rstrip(b"\n").rpartition(b" ")
    words = text.split(b" ")
    if f"{xxh3_64_intdigest(text):016x}".encode() != checksum or len(words) != _END_WORDS:
        raise CorruptionError("it fails its checksum")
    try:
        return JournalEnd(int(words[4]), int(words[6]))
    except ValueError as ex:
        raise CorruptionError(f"it passes its checksum, but names no end: {ex}") from ex
