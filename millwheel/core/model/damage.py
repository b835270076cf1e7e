"""Damaged bytes: one error for everything that a decoder may report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from millwheel.errors import CorruptionError, InvariantError

T = TypeVar("T")

DAMAGE = (msgspec.MsgspecError, ValueError, RecursionError, InvariantError)
"""The exceptions of decoders for arbitrary bytes: these do not parse, are not text, nest too deeply, or have impossible
values."""


def checked(decode: Callable[[bytes], T], what: str) -> Callable[[bytes], T]:
    """``decode``, which raises CorruptionError for anything that is not ``what``."""

    def decoded(data: bytes) -> T:
        try:
            return decode(data)
        except DAMAGE as ex:
            raise CorruptionError(f"{len(data)} bytes are not {what}: {ex}") from ex

    return decoded
