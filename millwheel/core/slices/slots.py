"""Slots: the 16384 parts of the key space that clients of the Redis protocol use.

Redis Cluster's rule: ``CRC16(text) mod 16384``, of the part within the first ``{...}`` if there is
one that is not empty. The hash of a key that can be queried by slot begins with its slot, so that
key ranges are ranges of slots:

    14 bits slot | the upper 50 bits of key_hash
"""

from __future__ import annotations

from binascii import crc_hqx

import msgspec

from millwheel.core.model.keys import Key, key_bytes, key_hash
from millwheel.core.model.ranges import SPACE, KeyRange

SLOTS = 16_384  # Fixed: of Redis Cluster
_BELOW_BITS = 50  # Fixed: of the 64 of a hash, below those of its slot
WIDTH = SPACE // SLOTS
"""The number of hashes that share a slot."""

_json = msgspec.json.Encoder().encode


def slot_of(text: bytes) -> int:
    """The slot of a name or of the text of a key, as every client of Redis Cluster computes it."""
    begin = text.find(b"{")
    if begin >= 0:
        end = text.find(b"}", begin + 1)
        if end > begin + 1:
            text = text[begin + 1 : end]
    return crc_hqx(text, 0) % SLOTS


def key_text(key: Key) -> bytes:
    """A key as it is written in names: text and bytes as they are, a number in decimals, a tuple as
    JSON."""
    kind = type(key)
    if kind is str:
        return str.encode(key)
    if kind is int:
        return b"%d" % key
    return key if kind is bytes else _json(key)


def slot_of_key(key: Key) -> int:
    """The slot of a key."""
    return slot_of(key_text(key))


def slot_hash(key: Key) -> int:
    """The position of a key in the 64-bit space, in order of slots."""
    return slot_of_key(key) << _BELOW_BITS | key_hash(key) >> (64 - _BELOW_BITS)


def slot_stored_key(key: Key) -> bytes:
    """:func:`slot_hash` in 8 bytes, big-endian, and the key's bytes behind it: the order of keys on
    disk."""
    return slot_hash(key).to_bytes(8, "big") + key_bytes(key)


def slots_within(within: KeyRange) -> tuple[int, int]:
    """The first and the last slot whose first hash lies in a range; last < first when there is
    none."""
    return -(-within.lo // WIDTH), -(-within.hi // WIDTH) - 1
