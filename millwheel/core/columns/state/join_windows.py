"""The open windows of a join, in columns.

The records of a segment lie in the order in which their windows end, and those of a window in the
order of arrival. So what closes is cut off, without a copy, and what stays is not touched.
"""

from __future__ import annotations

from millwheel.core.columns.few import Groups, frame_of
from millwheel.core.columns.groups_frame import END
from millwheel.core.columns.pairs import by_end
from millwheel.core.columns.windows import ColumnWindows, MergesGroups
from millwheel.core.lazy_polars import pl
from millwheel.core.model.times import MIN_TIME
from millwheel.core.windows.lateness import is_complete, still_open


class JoinWindows(ColumnWindows):
    """See the head of this file."""

    apart = 1

    def __init__(self, plan: MergesGroups, fan: int) -> None:
        super().__init__(plan, fan=fan)

    def restore(
        self, number: int, level: int, groups: pl.DataFrame, watermark: int, fired: int = MIN_TIME
    ) -> None:
        super().restore(number, level, by_end(groups), watermark)

    def take_closed(self, watermark: int) -> list[pl.DataFrame]:
        """The records of windows that end at or before ``watermark``, which are open no longer:
        those of each segment, in the order of arrival."""
        closed = []
        for segment in [
            segment for segment in self._segments if is_complete(segment.first, watermark)
        ]:
            groups = segment.groups
            count = groups.height - int(still_open(groups[END], watermark).sum())
            closed.append(groups.head(count))
            self._keep(segment, groups.slice(count))
        return closed

    def _append(self, groups: Groups, level: int, fired: int | None = None) -> None:
        super()._append(by_end(frame_of(groups)), level, fired)
