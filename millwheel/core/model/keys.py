"""Keys: the permitted values, their canonical bytes and their position in the hash space.

A key is a str, an int, bytes, or a tuple of keys. Floats and booleans are refused, because Python
holds ``1 == 1.0 == True`` and two keys that are equal in memory but differ on disk lose state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import xxhash

from millwheel.core.model.limits import over
from millwheel.errors import RecordError

Key = Any  # str | int | bytes | tuple[Key, ...]; recursive unions slow mypy down for no gain here
NULL: Key = ()
"""Null in keys where null is a group of its own. An empty list is not a key there."""

KeyHash = Callable[[Key], int]
"""A function that gives the position of a key in the 64-bit space. All of a node's keys are hashed
alike."""

_MOST_LEVELS = 30
"""The most levels of nested tuples: decoders take some hundreds, and a key travels within other
lists."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_xxh3: Callable[[bytes], int] = xxhash.xxh3_64_intdigest
_xxh3_bytes: Callable[[bytes], bytes] = xxhash.xxh3_64_digest
_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__index__),
    (bytes, bytes),
)
"""The types of keys, and the function that converts a value of a derived type, such as a member of
an IntEnum."""


def check_key(key: Any, level: int = 0) -> Key:
    """``key`` itself (lists become tuples). Raises RecordError, with the reason, if it cannot be a
    key."""
    kind = type(key)
    if kind is str:
        return key if key.isascii() else _check_text(key)
    if kind is int:
        return _check_width(key)
    if kind is bytes:
        return key
    if kind is tuple or kind is list:
        if level == _MOST_LEVELS:
            raise RecordError(
                f"a key of tuples in tuples, more than {_MOST_LEVELS} levels deep, cannot be stored"
            )
        return tuple(check_key(part, level + 1) for part in key)
    if key is None:
        raise RecordError("missing key: the record has no value where the key is read from")
    if kind is not bool:
        for base, plain in _PLAIN:
            if isinstance(key, base):
                return check_key(plain(key))
    raise RecordError(
        f"a key cannot be {kind.__name__} ({key!r}): use str, int, bytes or a tuple of them, "
        "for example with a `key: module:function` that converts it"
    )


def fitting_key(key: Any, most: int) -> Key:
    """:func:`check_key`, and RecordError also for a key of more than ``most`` encoded bytes."""
    key = check_key(key)
    kind = type(key)
    if kind is int or (kind is not tuple and len(key) * 4 + 5 <= most):
        return key
    size = len(_encode(key))
    if size > most:
        raise RecordError(over("key", "a key", size, most))
    return key


def _check_width(key: int) -> int:
    if -(2**63) <= key < 2**64:
        return key
    raise RecordError(f"the key {key} does not fit into 64 bits: make text of it")


def _check_text(key: str) -> str:
    try:
        key.encode()
    except UnicodeEncodeError as ex:
        raise RecordError(
            f"the key {key!r} is not a Unicode text: {ex.reason}; decode its bytes another way"
        ) from ex
    return key


def key_bytes(key: Key) -> bytes:
    """The canonical, self-delimiting bytes of a key (msgpack), used on disk and for hashing."""
    return _encode(key)


def key_from_bytes(data: bytes) -> Key:
    """The key that :func:`key_bytes` wrote."""
    key = _decode(data)
    return _tuples(key) if type(key) is list else key


def _tuples(parts: list[Any]) -> tuple[Any, ...]:
    return tuple(_tuples(part) if type(part) is list else part for part in parts)


def stored_key(key: Key) -> bytes:
    """:func:`key_hash` in 8 bytes, big-endian, and :func:`key_bytes` behind it: the order of keys
    on disk."""
    data = _encode(key)
    return _xxh3_bytes(data) + data


def key_hash(key: Key) -> int:
    """The position of the key in the 64-bit space (xxh3 of its canonical bytes)."""
    return _xxh3(_encode(key))


def key_hashes(keys: Iterable[Key]) -> Iterator[int]:
    """:func:`key_hash` of many keys."""
    return map(_xxh3, map(_encode, keys))
