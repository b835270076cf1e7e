"""Segments of records along time: those that wait for the watermark, and those that have been taken
and are still of use. Which a record is, its time tells: the watermark has passed it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from millwheel.core.columns.few import Groups
from millwheel.core.columns.segments import ColumnarSegment, ColumnarSegments, GroupsKind
from millwheel.core.lazy_polars import pl
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.windows.lateness import is_behind, is_complete

NEVER = MAX_TIME + 1  # Fixed: no watermark gets there


class TimelineSegments(ColumnarSegments):
    """Records that wait, and those that have been taken and are still of use. ``fan`` segments of
    one size become one."""

    kind = GroupsKind.ORDERED
    apart = 1

    def __init__(self, fan: int) -> None:
        super().__init__(self, fan=fan)

    @abstractmethod
    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Several segments as one, without what is of no more use."""

    @abstractmethod
    def _bounds(self, groups: Groups, fired: int) -> tuple[int, int]: ...

    def add(self, groups: Groups) -> None:
        super().add(groups)
        for segment in [each for each in self._segments if not each.held.height]:
            self._remove(segment)

    def restore(
        self, number: int, level: int, groups: pl.DataFrame, watermark: int, fired: int = MIN_TIME
    ) -> None:
        self._next_number = max(self._next_number, number + 1)
        self.closed = max(self.closed, watermark)
        self._take_stored(number, level, groups, max(watermark, fired))

    @property
    def taken_until(self) -> int:
        """No record before this time has its place behind those that have been taken."""
        return max([self.closed, *(segment.fired for segment in self._segments)])

    def take(self, watermark: int) -> None:
        """The records that the watermark has passed wait no longer."""
        self.closed = max(self.closed, watermark)
        for segment in self.segments():
            segment.fired = max(segment.fired, watermark)
            if is_complete(segment.last, watermark):
                self._remove(segment)
            elif is_behind(segment.first - 1, watermark):
                segment.first, segment.last = self._bounds(segment.groups, segment.fired)

    def _together(self) -> list[ColumnarSegment]:
        # of a shard of which others have taken more: then all of them have been taken as far
        if self.taken_until > self.closed:
            return []
        return super()._together()

    def due_at(self) -> int:
        """Also when the first segment goes."""
        gone = min((segment.last - 1 for segment in self._segments), default=MAX_TIME)
        return min(self.fires_at(), gone)
