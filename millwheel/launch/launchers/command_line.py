"""The command line that other processes see of this one (``ps``, ``pgrep -f``)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

ROOM = "-" * 1_000
"""An argument of a process that will show another command line later: it reserves the space for it."""

_ARG_START, _ARG_END = 47, 48
"""Fields of /proc/self/stat, from 0."""


def show_as(command: Sequence[str]) -> bool:
    """Show this process under another command line, truncated to the available space. False where the system does not
    allow it."""
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    start, end = (int(fields[number - 2]) for number in (_ARG_START, _ARG_END))  # the first two end with the bracket
    if not 0 < start < end:
        return False
    line = b"".join(word.encode() + b"\0" for word in command)[: end - start - 1]
    ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)
    return True
