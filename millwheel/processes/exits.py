"""How the processes of a run report why they ended. The supervisor acts on these codes alone."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of master, injector and workers; anything else, or a signal, is a crash and is restarted."""

    STOPPED = 0
    """Asked to stop, and everything acked is durable."""
    BAD_CONFIG = 64
    """Cannot work however often it is restarted; the last words on stderr say why (EX_USAGE)."""
    HUNG = 70
    """User code did not return in time; a note says which, and a fresh incarnation may start at once (EX_SOFTWARE)."""
    FENCED = 75
    """A newer owner took over; a fresh incarnation may start at once (EX_TEMPFAIL)."""
