"""Panes, the results a window emits when it fires, and retractions, which take results back."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from millwheel.core.model.keys import Key
from millwheel.core.windows.windows import Window


class Timing(str, Enum):
    """The time at which a pane fired, relative to its window's end."""

    EARLY = "early"
    """Before the watermark had passed the end of the window: speculative."""
    ON_TIME = "on_time"
    """The one pane that fires because the watermark has passed the end."""
    LATE = "late"
    """After that, because of records that came behind the watermark."""

    def __str__(self) -> str:
        return str(self.value)


class Accumulation(str, Enum):
    """The contents of a pane when its window fires more than once."""

    DISCARDING = "discarding"
    """Only the records since the last pane."""
    ACCUMULATING = "accumulating"
    """Everything so far; it replaces the last pane."""
    RETRACTING = "retracting"
    """Everything so far, after a retraction of the pane before."""


class OutputTime(str, Enum):
    """The timestamp of a pane."""

    END_OF_WINDOW = "end_of_window"
    """The window's last instant."""
    EARLIEST = "earliest"
    """The time of the earliest new record in the pane; the watermark is held there until it
    fires."""
    LATEST = "latest"
    """The time of the latest new record in the pane."""


class Pane(msgspec.Struct, frozen=True, kw_only=True):
    """One firing of one window of one key.

    ``index`` counts the window's panes from 0, ``nonspeculative_index`` those that are not early
    (-1 for early ones). ``is_last`` promises that nothing of this window will follow. A
    ``retraction`` repeats an earlier pane exactly, and takes it back. ``timestamp`` is that of the
    record the pane becomes (µs).
    """

    key: Key
    window: Window
    result: Any
    timestamp: int
    timing: Timing
    index: int
    nonspeculative_index: int
    is_first: bool
    is_last: bool
    retraction: bool = False

    @property
    def values(self) -> Any:
        """The result under the name it has when a window only collects its records: their
        values."""
        return self.result


def pane_of(
    key: Key,
    window: Window,
    result: Any,
    timing: Timing = Timing.ON_TIME,
    index: int = 0,
    last: bool = True,
    *,
    nonspeculative: int | None = None,
    at: int | None = None,
    retraction: bool = False,
) -> Pane:
    """A firing of a window. ``index`` counts its panes, ``nonspeculative`` those that are not early
    (None: all). It has the time ``at`` (None: the last instant of the window)."""
    return Pane(
        key=key,
        window=window,
        result=result,
        timestamp=window.end - 1 if at is None else at,
        timing=timing,
        index=index,
        nonspeculative_index=index if nonspeculative is None else nonspeculative,
        is_first=index == 0,
        is_last=last,
        retraction=retraction,
    )


def remember_pane(pane: Pane) -> list[Any]:
    """A pane as plain data, without its key."""
    return [
        *pane.window, pane.result, pane.timestamp, pane.timing.value,
        pane.index, pane.nonspeculative_index, pane.is_first, pane.is_last,
    ]  # fmt: skip


def retract_pane(key: Key, emitted: list[Any]) -> Pane:
    """The retraction of a remembered pane."""
    start, end, result, at, timing, index, nonspeculative, _, last = emitted
    fields = Window(start, end), result, Timing(timing), index, last
    return pane_of(key, *fields, nonspeculative=nonspeculative, at=at, retraction=True)


RETRACTION_FIELD = "__retraction__"
MARKED = 1  # Fixed: of the format of a retraction
_WRAPPED = 2  # Fixed: of the format of a retraction


class Retraction(msgspec.Struct, frozen=True, tag_field=RETRACTION_FIELD, tag=_WRAPPED):
    """A record that takes back an earlier one with the same key, value and timestamp.

    On the wire a dict is marked, ``{..., "__retraction__": 1}``, so that keys and filters find its
    fields as before; any other value is wrapped, ``{"__retraction__": 2, "value": ...}``. Every
    codec carries both.
    """

    value: Any


def as_retraction(value: Any) -> Retraction | None:
    """A record's value as a retraction, as made here or as received; None for plain values."""
    if type(value) is Retraction:
        return value
    if type(value) is not dict or RETRACTION_FIELD not in value:
        return None
    if value[RETRACTION_FIELD] == _WRAPPED:
        return Retraction(value.get("value"))
    return Retraction({name: field for name, field in value.items() if name != RETRACTION_FIELD})


def retracted(value: Any) -> Any:
    """The form in which a record that takes back ``value`` is sent."""
    return {**value, RETRACTION_FIELD: MARKED} if type(value) is dict else Retraction(value)


def stated_window(row: Mapping[str, Any]) -> Window:
    """The window of the pane that became this record."""
    return Window(row["window_start"], row["window_end"])


def pane_row(pane: Pane, head: Mapping[str, Any], bounded: bool = True) -> dict[str, Any]:
    """The record value that a pane becomes: the fields of its key (``head``), ``window_start``,
    ``window_end`` (µs; unless it is not ``bounded``) and the results, marked if it is a
    retraction."""
    row: dict[str, Any] = dict(head)
    if bounded:
        row["window_start"], row["window_end"] = pane.window
    if isinstance(pane.result, dict):
        row.update(pane.result)
    else:
        row["result"] = pane.result
    if pane.retraction:
        row[RETRACTION_FIELD] = MARKED
    return row
