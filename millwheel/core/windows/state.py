"""The state of one window of one key, and the tags of its timers: they are built here from the slot
of the state, and parsed here when a timer fires. They are stored with the timers."""

from __future__ import annotations

from typing import Any

import msgspec

from millwheel.core.windows.windows import Window

CLOSED = 1
"""The trigger has finished: nothing more is taken or emitted until the window is collected."""
PAST_ON_TIME = 2
"""The time for an on-time pane is over: it was emitted, or the watermark had passed the window
before its first record."""


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


_SHARE = "%"


def tag_of(slot: str | int | tuple[int, int]) -> str:
    """The timer tag of a window: ``start,end``, or the number of a session."""
    return f"{slot[0]},{slot[1]}" if isinstance(slot, tuple) else str(slot)


def share_tag(slot: str | int | tuple[int, int], share: float) -> str:
    """The tag of the timer by which a window follows a percentile watermark: the window's own, and
    the share."""
    return f"{tag_of(slot)}{_SHARE}{share}"


def share_of(tag: str) -> float | None:
    """The share in a tag that :func:`share_tag` made, None for other tags."""
    _, separator, share = tag.rpartition(_SHARE)
    return float(share) if separator else None


def without_share(tag: str) -> str:
    """The window's own tag."""
    return tag.partition(_SHARE)[0]


def window_of(tag: str) -> Window | None:
    """The window that :func:`tag_of` named (a share may follow it), None for other tags."""
    start, comma, end = without_share(tag).partition(",")
    try:
        return Window(int(start), int(end)) if comma else None
    except ValueError:
        return None
