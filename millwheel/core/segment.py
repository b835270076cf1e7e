"""How a group commit looks inside a journal segment. Pure.

    magic (4) · payload length (4) · group number (8) · xxh3-64 of number and payload (8) · payload

The payload is a msgpack array of entries. Groups are numbered from 1 without gaps across segments, so that a
missing segment or a reordered one is noticed. Whatever does not check is either *torn* (the end of a
write that never finished) or *damaged*: damaged when something valid follows it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import xxhash

MAGIC = b"MWj1"
HEADER = struct.Struct("<4sIQQ")
MAX_PAYLOAD_BYTES = 1 << 30
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


@dataclass(frozen=True, slots=True)
class Group:
    """One group commit as read: its number, its entries, and where the next one starts."""

    number: int
    entries: list[bytes]
    end: int


def encode_group(number: int, entries: Sequence[bytes]) -> bytes:
    """The bytes of one group commit."""
    payload = _encode(list(entries))
    return HEADER.pack(MAGIC, len(payload), number, _checksum(number, payload)) + payload


def decode_group(data: bytes | memoryview, offset: int) -> Group | None:
    """The group at ``offset``; None when the bytes there are incomplete or do not check."""
    start = offset + HEADER.size
    if start > len(data):
        return None
    magic, length, number, checksum = HEADER.unpack_from(data, offset)
    if magic != MAGIC or length > MAX_PAYLOAD_BYTES or start + length > len(data):
        return None
    payload = bytes(data[start : start + length])
    if _checksum(number, payload) != checksum:
        return None
    try:
        return Group(number, _decode(payload), start + length)
    except msgspec.MsgspecError:
        return None


def next_valid(data: bytes, offset: int) -> int:
    """Where, beyond a group that does not check, a valid one starts; -1 when none does."""
    at = data.find(MAGIC, offset + 1)
    while at >= 0:
        if decode_group(data, at) is not None:
            return at
        at = data.find(MAGIC, at + 1)
    return -1


def _checksum(number: int, payload: bytes) -> int:
    return xxhash.xxh3_64_intdigest(payload, seed=number & 0xFFFFFFFFFFFFFFFF)
