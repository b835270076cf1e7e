"""Records that wait for the watermark, in columns.

A bundle adds a segment, sorted by time. Whether a record of it waits or has been taken, its time
tells: the watermark has passed it. So what comes due is a part of each segment, and nothing is
written again for it. A segment goes once all of it is of no more use.

Records of one time come in the order of the names that they have in rows (record_order.py): by
channel, then by their number there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from millwheel.core.columns.batch import Int64s
from millwheel.core.columns.few import Groups, frame_of
from millwheel.core.columns.segments import ColumnarSegment
from millwheel.core.columns.state.newest import compact
from millwheel.core.lazy_polars import pl
from millwheel.core.ranked.kept_records import AT, ROW, Mask
from millwheel.core.ranked.timeline import NEVER, TimelineSegments
from millwheel.core.windows.lateness import is_behind

CHANNEL, NUMBER = "channel", "number"


class WaitingSegments(TimelineSegments):
    """Records that are of no use once they have been taken. All frames are sorted by time."""

    def row_type(self, column: str = ROW) -> Any:
        """The type of the records in a column; None for none."""
        for segment in self._segments:
            if column in segment.groups.schema:
                return segment.groups.schema[column]
        return None

    def due(self, watermark: int) -> list[pl.DataFrame]:
        """The records that the watermark has passed, and that wait, by segment."""
        return [
            due_of(segment, watermark)
            for segment in self._segments
            if is_behind(segment.first - 1, watermark)
        ]

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        whole = pl.concat(groups, how="diagonal", rechunk=True)
        whole = compact(whole, self._of_use(whole))
        return by_time(whole)

    def _of_use(self, whole: pl.DataFrame) -> Mask:
        """Which records wait, or are still of use."""
        waits: Mask = whole[AT].to_numpy() >= self.closed
        return waits

    def _bounds(self, groups: Groups, fired: int) -> tuple[int, int]:
        at = self._waiting_times(frame_of(groups))
        waits = int(np.searchsorted(at, fired))
        first = int(at[waits]) + 1 if waits < len(at) else NEVER
        return first, self._gone_at(frame_of(groups), at)

    def _waiting_times(self, groups: pl.DataFrame) -> Int64s:
        """The times, in order, at which something is to be done."""
        times: Int64s = groups[AT].to_numpy()
        return times

    def _gone_at(self, groups: pl.DataFrame, times: Int64s) -> int:
        """When all of a segment is of no more use."""
        return int(times[-1]) + 1


def by_time(records: pl.DataFrame) -> pl.DataFrame:
    """Records sorted by time."""
    at = records[AT].to_numpy()
    return records if (at[1:] >= at[:-1]).all() else records[np.argsort(at, kind="stable")]


def due_of(segment: ColumnarSegment, watermark: int) -> pl.DataFrame:
    """The records of a segment that the watermark has passed, and that wait."""
    groups = segment.groups
    first, after = np.searchsorted(groups[AT].to_numpy(), [segment.fired, watermark]).tolist()
    return groups[first : max(first, after)]


def indexes_in_order(records: pl.DataFrame) -> Int64s:
    """The indexes of records in the order in which they come: by time, channel and number."""
    at = records[AT].to_numpy()
    order = np.lexsort([records[NUMBER].to_numpy(), channel_ranks(records[CHANNEL]), at])
    indexes: Int64s = order
    return indexes


def channel_ranks(channels: pl.Series) -> Int64s:
    """Numbers that are in the order of the names of channels, as the tags of rows begin."""
    names = channels.unique().to_list()
    if len(names) < 2:
        return np.zeros(len(channels), np.int64)
    names.sort(key=lambda name: f"{name}:")  # as a tag goes on behind it
    ranks = channels.replace_strict(names, np.arange(len(names)), return_dtype=pl.Int64)
    return ranks.to_numpy()  # type: ignore[no-any-return]
