"""The state of one window of one key."""

from __future__ import annotations

from typing import Any

import msgspec

CLOSED = 1
"""The trigger has finished: nothing more is taken or emitted until the window is collected."""
SPOKEN = 2
"""The time for an on-time pane is over: it was emitted, or the window only came to be behind the
watermark."""


class WindowState(msgspec.Struct, array_like=True):
    """One window. Plain data: stored as a list, read back from a list.

    ``fresh`` counts changes since the last pane, ``count`` the records in the window.
    ``output_at_us`` is the output time of the fresh records. ``timer_at_us``, ``clock_at_us`` and
    ``held_at_us`` were last requested of the runtime. ``emitted`` are panes that stand and would
    have to be retracted; ``kept`` are [timestamp, value] of the records, where taking one back
    needs them; in windows that merge, with their numbers in the order of arrival. ``in_runs``:
    ``acc`` remembers that order (core/aggregates/arrival_order.py).
    """

    acc: Any
    trigger: Any = 0
    flags: int = 0
    fresh: int = 0
    count: int = 0
    index: int = 0
    nonspeculative: int = 0
    output_at_us: int | None = None
    timer_at_us: int | None = None
    clock_at_us: int | None = None
    held_at_us: int | None = None
    emitted: list[Any] = []
    kept: list[Any] = []
    in_runs: bool = False


def as_state(stored: Any) -> WindowState | None:
    """The state as stored (a list), as cached (itself), or None."""
    if stored is None or type(stored) is WindowState:
        return stored
    return WindowState(*stored)
