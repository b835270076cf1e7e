"""How many files a process may open, and how many of them connections may take."""

from __future__ import annotations

import resource
from contextlib import suppress

_MOST_FILES = 1 << 20  # where the hard limit is none: more than any process here can use
_RESERVE = 1_000  # files for journals, stores, snapshots and other workers, whatever clients do


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard one, once, at the start of a process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # some systems have a lower bound of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def connections(wanted: int) -> int:
    """``wanted``, or what the limit of files leaves for the connections of one listener: at most half of it."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, max(soft - _RESERVE, soft // 2) // 2))
