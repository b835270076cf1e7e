"""The tags of a window's timers: built here from where its state lies, and taken apart here when a
timer fires.

They are stored with the timers.
"""

from __future__ import annotations

from millwheel.core.windows.windows import Window

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
