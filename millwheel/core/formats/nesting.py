"""How deeply values may nest. Pure.

Decoders count the levels of a value together with the calls that they are in, so a value that can
just be read can be undecodable for the next process, whose calls are a little deeper. A limit far
below theirs, judged where a value comes in, holds wherever it goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

MOST_NESTING = 500
"""Half of what Python's decoders take: dead letters, rows of windows and messages wrap a value in a
few levels more."""
_OPENERS = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])
"""Fixed: the bytes of msgpack with which a list or a map begins. Text and numbers may have them,
too."""
_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode


def nests_too_deeply(data: bytes, most: int = MOST_NESTING) -> bool:
    """Whether an encoded value has more than ``most`` levels of lists and maps. It has at least as
    many bytes that could open one, which is all that is looked at for nearly every value."""
    if len(data) <= most or len(data) - len(data.translate(None, _OPENERS)) <= most:
        return False
    try:
        value = _decode(data)
        # The encoder knows sooner: most of what is looked at here is long, and not deep.
        return not (most >= MOST_NESTING and all_nest_little([value])) and not _within(value, most)
    except RecursionError:
        return True


def all_nest_little(values: list[Any]) -> bool:
    """Whether the encoder takes all values below so many levels more. That proves them to be within
    the limit; False proves nothing. Costs as much as to encode them."""
    around: Any = values
    for _ in range(MOST_NESTING):
        around = [around]
    try:
        _encode(around)
    except RecursionError:
        return False
    return True


def _within(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most + 1):
        level = [
            part
            for each in level
            if type(each) is list or type(each) is dict
            for part in _parts(each)
        ]
        if not level:
            return True
    return False


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if type(value) is dict else value
