"""Lateness: late records, complete windows, and final windows. Only this module compares such
times.

All times are µs. No record before the watermark is expected; a record **at** the watermark is on
time. So

- a record is **late** once the watermark has passed its timestamp (:func:`is_behind`);
- a window ``[start, end)`` is **complete** once the watermark is at its end (:func:`is_complete`);
- it is **final** once the watermark has passed its last instant and the allowed lateness
  (:func:`is_final`): its state is removed, and a record that has only such windows is dropped, or
  goes to the output that ``late:`` names.

Sources judge a record by the records before it in its partition, never by the clock or by the
watermark of that moment (:func:`late_mask`): a second reading, in other bundles, drops the same
ones.

The column path judges whole columns. Its functions stand beside those for single values, because
both paths through an operator must agree on every record: results must not depend on the path that
a bundle takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from millwheel.core.model.times import MAX_TIME, MIN_TIME, duration_text
from millwheel.core.windows.windows import Window

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Longs = NDArray[np.int64]


def is_behind(time_us: int, watermark_us: int) -> bool:
    """Whether the watermark has passed this instant, so that a record of that time is late."""
    return time_us < watermark_us


def late_among(times_us: Sequence[int], watermark_us: int) -> Iterator[int]:
    """:func:`is_behind` for many: the indexes of the times that the watermark has passed."""
    return (index for index, time_us in enumerate(times_us) if time_us < watermark_us)


# --- sources


def is_too_far(time_us: int, now_us: int, max_future_us: int | None) -> bool:
    """Whether a timestamp lies so far in the future that it must be a mistake. None: none does."""
    return max_future_us is not None and time_us > now_us + max_future_us


def too_far(time_us: int, max_future_us: int | None) -> str:
    """The reason for refusing a timestamp that :func:`is_too_far`."""
    allowed = duration_text(max_future_us or 0)
    return f"timestamp {time_us} µs lies more than {allowed} in the future (watermark.max_future)"


def watermark_after(highest_us: int, max_delay_us: int) -> int:
    """The watermark of a partition whose highest timestamp so far is ``highest_us`` (MIN_TIME:
    nothing was read)."""
    return max(highest_us - max_delay_us, MIN_TIME) if highest_us > MIN_TIME else MIN_TIME


def labels_of(times_us: Sequence[int] | _Longs, highest_us: int, max_delay_us: int) -> _Longs:
    """The watermark of a partition at each of its records in order, with that record included.
    ``highest_us`` is the highest timestamp before them."""
    import numpy as np  # not above: see late_mask

    highest = np.maximum(np.maximum.accumulate(np.asarray(times_us, np.int64)), highest_us)
    # It does not wrap: a timestamp has no more than 62 bits.
    labels: _Longs = highest - min(max_delay_us, 2**62)
    return labels


def none_late(lowest_us: int, highest_us: int, max_delay_us: int) -> bool:
    """Whether no record can be late among records from ``lowest_us`` on, when none so far is above
    ``highest_us``."""
    return lowest_us >= highest_us - max_delay_us


def late_mask(
    times_us: _Longs, highest_us: int, max_delay_us: int, stated: bool = False
) -> NDArray[np.bool_]:
    """Which records of a read come more than ``max_delay_us`` behind the highest timestamp before
    them.

    ``highest_us`` is the highest before the read, MIN_TIME when there was none. ``stated``: the
    source states its watermarks itself, so the records of a read do not make each other late.
    """
    # The delay is added to the records, not taken from the highest time: MIN_TIME - delay would
    # wrap round to the far future, and the first read of every partition would be dropped.
    import numpy as np  # not above: ``millwheel --help`` reads triggers, and must not wait for it

    before = np.full(len(times_us), highest_us, np.int64)
    if not stated:
        np.maximum(np.maximum.accumulate(times_us[:-1]), highest_us, out=before[1:])
    return np.less(times_us + max_delay_us, before)


def late_rows(
    times_us: Sequence[int], highest_us: int, max_delay_us: int, stated: bool = False
) -> list[int]:
    """:func:`late_mask` for a few records: the indexes of the late ones."""
    late = []
    for index, time_us in enumerate(times_us):
        if time_us + max_delay_us < highest_us:
            late.append(index)
        elif time_us > highest_us and not stated:
            highest_us = time_us
    return late


# --- windows


def is_complete(end_us: int, watermark_us: int) -> bool:
    """Whether no record of a window that ends there is expected any more."""
    return watermark_us >= end_us


def final_at_us(end_us: int, allowed_us: int) -> int:
    """A window that ends at ``end_us`` is final once the watermark has passed this.

    At the end of bounded input the watermark is MAX_TIME and passes everything, also the end of the
    global window.
    """
    return min(end_us - 1 + allowed_us, MAX_TIME - 1)


def is_final(end_us: int, watermark_us: int, allowed_us: int) -> bool:
    """Whether a window that ends at ``end_us`` cannot change any more."""
    return watermark_us > final_at_us(end_us, allowed_us)


def final_until(watermark_us: int, allowed_us: int) -> int:
    """Windows that end at this time or before are :func:`is_final`, all others are not."""
    return watermark_us if watermark_us >= MAX_TIME else max(watermark_us - allowed_us, MIN_TIME)


def open_windows(windows: Sequence[Window], watermark_us: int) -> list[Window]:
    """The windows that are not complete; with ``final_until`` as the watermark, the windows that
    still take records."""
    return [window for window in windows if window.end > watermark_us]


def still_open(ends_us: Any, watermark_us: int) -> Any:
    """:func:`is_complete`, negated, for a whole column: of an array the mask, of a Polars
    expression the predicate."""
    return ends_us > watermark_us


def too_late(what: str = "window") -> str:
    """The reason for dropping a record whose ``what`` is final."""
    return f"the watermark has passed the end of its {what} and the allowed lateness"
