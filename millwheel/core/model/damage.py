"""Damaged bytes: one error for all errors of decoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from millwheel.errors import CorruptionError, InvariantError

T = TypeVar("T")

DAMAGE = (msgspec.MsgspecError, ValueError, RecursionError, InvariantError)
"""The exceptions of decoders for arbitrary bytes: these do not parse, are not text, nest too
deeply, or have impossible values."""


def checked(decode: Callable[[bytes], T], what: str) -> Callable[[bytes], T]:
    """``decode``, which raises CorruptionError for anything that is not ``what``."""

    def decoded(data: bytes) -> T:
        try:
            return decode(data)
        except DAMAGE as ex:
            raise CorruptionError(f"{len(data)} bytes are not {what}: {ex}") from ex

    return decoded


def is_failure(ex: BaseException) -> bool:
    """Whether an exception means that a call has failed, and not that the process is to end."""
    return isinstance(ex, Exception) or is_panic(ex)


def is_panic(ex: BaseException) -> bool:
    """Whether a library in Rust has given up a call. Its exception is not an :class:`Exception`."""
    return type(ex).__name__ == "PanicException"
