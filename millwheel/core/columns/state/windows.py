"""The open windows of all keys of a shard, in columns: the columnar segments
(:mod:`millwheel.core.columns.segments`) of an aggregation, and the windows that a watermark closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.columns.few_groups import Groups, ending_after, ending_by, frame_of
from millwheel.core.columns.groups import GroupsPlan
from millwheel.core.columns.groups_frame import END, START, in_order_of_time
from millwheel.core.columns.segments import ColumnarSegment, ColumnarSegments
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.windows.lateness import is_complete
from millwheel.core.windows.windows import Window
from millwheel.errors import invariant


class ColumnWindows(ColumnarSegments):
    """Open windows.

    In a bundle: the groups of its records go through :meth:`entering`; the windows that the
    watermark has passed are taken out by :meth:`close`; then the groups are divided by
    :meth:`on_time`, and added.
    """

    @property
    def example(self) -> pl.DataFrame | None:
        """Some groups, whose types all others have; None where that is not certain."""
        return None

    def late_until(self, watermark: int) -> int:
        """Records are late whose group ends at this time or before."""
        return watermark

    def entering(self, groups: Groups, watermark: int) -> Groups:
        """The groups of a bundle in time, as they are held. Raises Inexact."""
        return groups

    def on_time(self, groups: Groups, watermark: int) -> tuple[Groups, Groups | None]:
        """The groups of windows that have not fired, and of those that have and still take records
        (None: none)."""
        return groups, None

    def fired(self, among: pl.DataFrame | None = None) -> pl.DataFrame | None:
        """The windows that have fired and still take records, as they fired, or those of them that
        are ``among`` late groups; None for none."""
        return None

    def open_windows(self, of_key: pl.Expr) -> list[Window]:
        """The windows of a key, which ``of_key`` is true for."""
        if not self:
            return []
        return [
            Window(*bounds)
            for bounds in self.all_groups().filter(of_key).select(START, END).unique().iter_rows()
        ]

    def of_key(self, plan: GroupsPlan, key: Key) -> list[tuple[Window, Any]]:
        """The open windows of a key, ordered by end, each with its accumulator of the row form."""
        return windows_of_key(plan, [segment.groups for segment in self._segments], key)

    def close(self, watermark: int) -> pl.DataFrame | None:
        """The windows that end at or before ``watermark``, which are open no longer, in the order
        of their ends; None when there is none. Raises Inexact, and then nothing has changed."""
        due = [segment for segment in self._segments if is_complete(segment.first, watermark)]
        if not due:
            return None
        parts = [
            s.held if is_complete(s.last, watermark) else ending_by(s.held, watermark) for s in due
        ]
        closed = in_order_of_time(frame_of(self._merge(parts)))
        self._forget(due, watermark)
        # Groups left of them would fire again with the next watermark, as a second result.
        invariant(
            not any(is_complete(each.first, watermark) for each in self._segments),
            f"windows that have fired at {watermark} are still open",
        )
        return closed

    def _forget(self, segments: Sequence[ColumnarSegment], watermark: int) -> None:
        """Windows that end up to ``watermark`` are open no longer."""
        for segment in segments:
            if is_complete(segment.last, watermark):
                self._remove(segment)
            else:
                self._keep(segment, ending_after(segment.held, watermark))

    def parted(self, groups: pl.DataFrame, fired: int) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Groups that have left, divided: not fired, and fired but still taking records (None:
        there are none)."""
        return groups, None


def windows_of_key(
    plan: GroupsPlan, groups: Sequence[pl.DataFrame], key: Key
) -> list[tuple[Window, Any]]:
    """The windows of a key in several groups frames, ordered by end, each with its accumulator of
    the row form."""
    frames = [frame.filter(plan.of_key(key)) for frame in groups]
    frames = [frame for frame in frames if frame.height]
    windows = (
        [(group.window, group.acc) for _, group in plan.row_groups(plan.merge(frames))]
        if frames
        else []
    )
    return sorted(windows, key=lambda each: (each[0].end, each[0].start))


def results_of(
    plan: GroupsPlan, windows: Sequence[tuple[Window, Any]], aggregation: Aggregation, closed: int
) -> list[tuple[Window, Any]]:
    """The results of windows with these accumulators. Those up to ``closed`` have fired."""
    return [
        (
            window,
            aggregation.result(
                aggregation.create() if plan.empties and window.end <= closed else acc
            ),
        )
        for window, acc in windows
    ]
