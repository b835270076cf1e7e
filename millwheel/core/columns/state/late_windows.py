"""The windows of all keys of a shard, in columns, that stay for late records after they have fired.

A window fires once from columns, when the watermark has passed its end, and its group stays until
its end and the allowed lateness have passed. No group stores whether it has fired: all have that
end at or before the watermark up to which the shard has closed windows, which each commit stores.
So nothing is written when a window fires. Only a segment that comes from another shard stores how
far that one was.

A late record goes to the row form, which gets the window as it fired, and has it from then on. The
window's groups in columns are not looked at again, and go with the segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.columns.few_groups import Groups, ending_after, ending_by, ends_of, frame_of
from millwheel.core.columns.groups import GroupsPlan
from millwheel.core.columns.groups_frame import END, KEY, START, in_order_of_time
from millwheel.core.columns.segments import GroupsKind, MergesGroups, Types
from millwheel.core.columns.state.windows import ColumnWindows
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.windows.lateness import final_at_us, final_until, is_complete, still_open
from millwheel.core.windows.windows import Window

_NEVER = MAX_TIME + 1  # Fixed: no watermark gets there


class KeptColumns(ColumnWindows):
    """See the head of this file. Windows up to ``closed`` have fired."""

    kind = GroupsKind.KEPT
    apart = 1

    def __init__(
        self, plan: MergesGroups, lateness_us: int, closed: int, types: Types = ()
    ) -> None:
        super().__init__(plan, types)
        self.lateness_us = lateness_us
        self.closed = closed

    def restore(
        self, number: int, level: int, groups: pl.DataFrame, watermark: int, fired: int = MIN_TIME
    ) -> None:
        self._next_number = max(self._next_number, number + 1)
        open_groups = groups.filter(still_open(pl.col(END), self.late_until(watermark)))
        self._take_stored(number, level, open_groups, max(watermark, fired))

    def late_until(self, watermark: int) -> int:
        return final_until(watermark, self.lateness_us)

    def on_time(self, groups: Groups, watermark: int) -> tuple[Groups, Groups | None]:
        if not groups.height or not is_complete(int(ends_of(groups).min()), watermark):
            return groups, None
        return ending_after(groups, watermark), ending_by(groups, watermark)

    def due_at(self) -> int:
        """As before, and when the first segment goes."""
        gone = min(
            (final_at_us(segment.last, self.lateness_us) for segment in self._segments),
            default=MAX_TIME,
        )
        return min(self.fires_at(), gone)

    def close(self, watermark: int) -> pl.DataFrame | None:
        due = [segment for segment in self._segments if is_complete(segment.first, watermark)]
        parts = [ending_after(ending_by(segment.held, watermark), segment.fired) for segment in due]
        self.closed = max(self.closed, watermark)
        until = self.late_until(watermark)
        for segment in [each for each in self._segments if is_complete(each.last, until)]:
            self._remove(segment)
            due = [each for each in due if each is not segment]
        for segment in due:
            segment.fired = watermark
            self._keep(segment, ending_after(segment.held, until))
        closed = self._merged(parts)
        return None if closed is None else in_order_of_time(closed)

    def all_groups(self) -> pl.DataFrame:
        """Every window that has not fired."""
        return self._plan.merge(
            [
                segment.groups.filter(still_open(pl.col(END), segment.fired))
                for segment in self._segments
            ]
        )

    def fired(self, among: pl.DataFrame | None = None) -> pl.DataFrame | None:
        if among is None:
            within = still_open(pl.col(END), self.late_until(self.closed))
            parts = [
                each.groups.filter(within & ~still_open(pl.col(END), each.fired))
                for each in self._segments
            ]
            return self._merged(parts)
        first = among[END].min()
        near = [segment.groups for segment in self._segments if segment.last >= first]  # type: ignore[operator]
        if not near:
            return None
        # Every window with a late record has fired.
        return self._merged(
            [pl.concat(near).join(among, on=[KEY, START, END], how="semi", maintain_order="left")]
        )

    def parted(self, groups: pl.DataFrame, fired: int) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        ahead = still_open(pl.col(END), fired)
        behind = groups.filter(~ahead & still_open(pl.col(END), self.late_until(self.closed)))
        return groups.filter(ahead), behind if behind.height else None

    def of_key(self, plan: GroupsPlan, key: Key) -> list[tuple[Window, Any]]:
        until = self.late_until(self.closed)
        windows = super().of_key(plan, key)
        return [(window, acc) for window, acc in windows if window.end > until]

    def open_windows(self, of_key: pl.Expr) -> list[Window]:
        until = self.late_until(self.closed)
        parts = [
            segment.groups.filter(of_key & still_open(pl.col(END), until))
            for segment in self._segments
        ]
        bounds = pl.concat([part.select(START, END) for part in parts]).unique() if parts else None
        return [] if bounds is None else [Window(*row) for row in bounds.iter_rows()]

    def _merged(self, parts: Sequence[Groups]) -> pl.DataFrame | None:
        some = [part for part in parts if part.height]
        return frame_of(self._merge(some)) if some else None

    def _bounds(self, groups: Groups, fired: int) -> tuple[int, int]:
        ends = ends_of(groups)
        ahead = ends[still_open(ends, fired)]
        return int(ahead.min()) if len(ahead) else _NEVER, int(ends.max())
