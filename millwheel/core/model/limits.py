"""Caps on the size of records, keys and state, and on the duration of a callback. The defaults
work."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millwheel.core.model.times import SECOND

CREDIT_BYTES = 1024
"""The most bytes of a record that counts as one in credit; a larger one counts as several."""
DELIVERY_BYTES = 4 << 20
"""Batches are cut into deliveries of about this size. One record may be larger."""
_UNITS = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
"""Fixed: units of sizes."""
_SIZE = re.compile(r"(\d+)\s*(B|kB|MB|GB|KiB|MiB|GiB)")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one pipeline.

    ``record``, ``key`` and ``state`` are bytes of one encoded record, key and entry of state.
    ``in_flight`` bytes of productions may wait in a shard for its consumers. ``timers`` of each
    domain may wait per key. Once the input has ended, timers of one key may set timers ``chain``
    times. A call of user code that takes longer than ``callback_us`` (None: never) ends its worker.
    After ``hangs`` such ends the same record, timer or window is not passed to user code again.
    """

    record: int = 16 << 20
    key: int = 16 << 10
    state: int = 32 << 20
    timers: int = 10_000
    chain: int = 10_000
    in_flight: int = 100 << 20
    callback_us: int | None = 60 * SECOND
    hangs: int = 1


DEFAULTS = Limits()


def size_bytes(text: str) -> int:
    """Bytes of a size such as ``"64kB"`` or ``"1MiB"``. Raises ValueError with the accepted
    forms."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not a size; write a number and a unit, such as 500B, 64kB, 1MB or 16MiB"
        )
    return int(match[1]) * _UNITS[match[2]]


def size_text(size: int) -> str:
    """Words for a size: ``16_777_216`` is ``16MiB``."""
    for unit in ("GiB", "GB", "MiB", "MB", "KiB", "kB"):
        if size >= _UNITS[unit] and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return f"{size}B"


def over(option: str, what: str, size: int, most: int) -> str:
    """The error message for a value that is larger than a limit."""
    return (
        f"{what} of {size} bytes is over limits.{option} ({size_text(most)}); docs/limits.md says"
        " how to raise it"
    )
