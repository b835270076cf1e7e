"""The ids of weak productions, made in one place. Pure.

A weak production leaves its worker before the commit that contains it. After a crash the step runs
again, perhaps in other bundles, and consumers recognize a production that they have already applied
by its id. So an id must be

- unique: no two productions of a computation ever share one, or the second is dropped as a copy of
  the first;
- the same when the step runs again: or the production counts twice.

Both hold because an id names what *caused* a production, never a position in a bundle and never a
counter:

| cause | named by |
|---|---|
| a record | its external id, or its number in its channel |
| a timer of a callback | the cause of the call that set it: its time may come twice |
| a window that is complete | its key and bounds: it is complete once |
| another pane, a late or unusable record | the record, or the clock, that fired the window |

and then the number of the production within the call. Where there is no name (records without an id
from an at-least-once computation) the cause is None, and such productions have no id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import xxhash

from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.timers import Due
from millwheel.core.windows.panes import Pane, Timing
from millwheel.core.windows.state import share_of

Cause = Any
"""Plain data that msgpack can carry; None: unknown."""

UNKNOWN = b"?"
"""The stored form of a cause that is None. (b"" is a timer that was set without a cause: by the
system, or while the computation had strong productions.)"""

_encode = msgspec.msgpack.Encoder().encode


def production_id(cause: Cause, number: int) -> bytes:
    """The id of one production of a call; b"" when it has none."""
    return b"" if cause is None else _encode((cause, number))


def record_causes(batch: Batch, channel: ChannelName) -> Sequence[Cause]:
    """The cause of each record of a delivery.

    An external id comes first: of two copies in different channels either may be the one that
    counts when the step runs again. It is unique to its stream and key only, and for as long as
    copies are remembered, hence the rest.
    """
    if batch.ids is None:
        return [(channel, seq) for seq in batch.seqs] if batch.seqs else [None] * len(batch)
    numbers: Sequence[int] = batch.seqs or [0] * len(batch)
    rows = zip(batch.ids, numbers, batch.keys, batch.timestamps, strict=True)
    return [_of_record(batch.stream, channel, *row) for row in rows]


def _of_record(
    stream: str, channel: ChannelName, record_id: Any, seq: int, key: Any, timestamp: int
) -> Cause:
    if record_id is None:
        return (channel, seq) if seq else None
    # A weak production may come again with another time: the watermark at which it is sent aside.
    return (stream, record_id, key, timestamp) if seq else (stream, record_id)


def remembered(cause: Cause) -> bytes:
    """The part of the cause that a timer keeps from the call that set it."""
    return UNKNOWN if cause is None else xxhash.xxh3_128_digest(_encode(cause))


def timer_cause(due: Due) -> Cause:
    """The cause for a timer of a callback. Its time is not part of it: a wall-clock timer that is
    set again after a crash is set for another moment."""
    if due.cause == UNKNOWN:
        return None
    if not due.cause:
        return ("t", due.key, due.tag, due.at, due.domain.value)
    return ("t", due.cause, due.tag, due.domain.value)


def window_timer_cause(due: Due) -> Cause:
    """The cause for a window that fires without a record. Which of its timers finds that the
    watermark has passed it depends on how far the watermark jumps, so only the wall clock and
    percentile watermarks are named."""
    if due.domain is Domain.EVENT and share_of(due.tag) is None:
        return ("w", due.key)
    return ("w", due.key, due.tag, due.at)


def pane_cause(call: Cause, pane: Pane, complete_once: bool) -> Cause:
    """The cause for a pane; ``call`` made the window fire. ``complete_once``: a window with such
    bounds is complete only once."""
    start, end = pane.window
    if complete_once and pane.timing is Timing.ON_TIME and not pane.retraction:
        return ("p", pane.key, start, end)
    return (
        None
        if call is None
        else ("p", call, start, end, pane.timing.value, pane.index, pane.retraction)
    )


def aside_cause(call: Cause, what: str, number: int) -> Cause:
    """The cause for records that a window emits without having held them: late records, dead
    letters."""
    return None if call is None else (what, call, number)
