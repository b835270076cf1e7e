"""The exit codes by which processes of a run report why they ended. The supervisor acts on these codes alone."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn


class Exit(IntEnum):
    """Exit codes of master, injector and workers; anything else, or a signal, is a crash and is restarted."""

    STOPPED = 0
    """Asked to stop, and everything acked is durable."""
    BAD_CONFIG = 64
    """No restart can help; the last lines on standard error say why (EX_USAGE)."""
    HUNG = 70
    """User code did not return in time; a note says which, and a fresh incarnation may start at once (EX_SOFTWARE)."""
    FENCED = 75
    """A newer owner took over; a fresh incarnation may start at once (EX_TEMPFAIL)."""


def leave(code: int) -> NoReturn:
    """End this process now. Its output is flushed first. The interpreter is not finalized, which would take a tenth of
    a second for nothing. Threads end wherever they are, as when the process is killed."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader is gone
            stream.flush()
    os._exit(code)
