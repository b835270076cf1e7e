"""The open windows of all keys of a shard, in columns.

State is a list of *columnar segments*, each the groups of one or more bundles. A bundle adds a columnar segment.
``_FAN`` segments of one size merge into one of the next size, so a group is rewritten only a few times, however many
bundles there are. A columnar segment is one entry of the store, and goes when its last window has closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from millwheel.core.columns.lazy_polars import pl
from millwheel.core.columns.plan import END, ColumnPlan
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.lateness import is_complete, still_open
from millwheel.core.windows.windows import Window

_FAN = 8  # segments of one size that become one: each group is rewritten log8 times


@dataclass(slots=True, eq=False)
class ColumnarSegment:
    """Groups of bundles. ``number`` is its name; ``level`` how often its parts were put together."""

    number: int
    level: int
    groups: pl.DataFrame
    first_end: int
    last_end: int


@dataclass(slots=True)
class Changes:
    """The changes of a bundle: the numbers of removed segments, and the new segments."""

    gone: list[int] = field(default_factory=list)
    new: list[ColumnarSegment] = field(default_factory=list)


class MergesGroups(Protocol):
    """How groups frames become one: the plan of an aggregation does it, or a join."""

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame: ...


class ColumnWindows:
    """Open windows. ``watermark`` is the highest that windows were closed for."""

    def __init__(self, plan: MergesGroups) -> None:
        self._plan = plan
        self._segments: list[ColumnarSegment] = []
        self._next_number = 0
        self._changes = Changes()

    def restore(self, number: int, level: int, groups: pl.DataFrame, watermark: int) -> None:
        """A columnar segment found in the store, in order of numbers; windows up to ``watermark`` have closed."""
        self._next_number = max(self._next_number, number + 1)
        kept = groups.filter(still_open(pl.col(END), watermark))
        if kept.height:
            self._segments.append(_segment(number, level, kept))
        else:
            self._changes.gone.append(number)

    def add(self, groups: pl.DataFrame) -> None:
        """The groups of a bundle, none of them of a window that has closed."""
        if not groups.height:
            return
        self._append(groups, 0)
        while len(tail := self._of_last_level()) >= _FAN:
            for segment in tail:
                self._remove(segment)
            self._append(self._plan.merge([segment.groups for segment in tail]), tail[-1].level + 1)

    def due_at(self) -> int:
        """The first window closes once the watermark has passed this (MAX_TIME: there is none)."""
        return min((segment.first_end - 1 for segment in self._segments), default=MAX_TIME)

    def close(self, watermark: int) -> pl.DataFrame | None:
        """The windows that end at or before ``watermark``, which are open no longer, in the order of their ends; None
        when there is none."""
        closed = []
        for segment in [segment for segment in self._segments if is_complete(segment.first_end, watermark)]:
            closed.append(segment.groups.filter(~still_open(pl.col(END), watermark)))
            if is_complete(segment.last_end, watermark):
                self._remove(segment)
                continue
            segment.groups = segment.groups.filter(still_open(pl.col(END), watermark))
            segment.first_end = segment.groups[END].min()  # type: ignore[assignment]
        return in_order_of_time(self._plan.merge(closed)) if closed else None

    def all_groups(self) -> pl.DataFrame:
        """Every open window."""
        return self._plan.merge([segment.groups for segment in self._segments])

    def of_key(self, plan: ColumnPlan, key: Key) -> list[tuple[Window, Any]]:
        """The open windows of a key, ordered by end, each with its accumulator of the row form."""
        return windows_of_key(plan, [segment.groups for segment in self._segments], key)

    def size(self) -> int:
        """About how many bytes they take."""
        return sum(int(segment.groups.estimated_size()) for segment in self._segments)

    def clear(self) -> None:
        """Forget all windows."""
        for segment in list(self._segments):
            self._remove(segment)

    def take_changes(self) -> Changes:
        """The changes since the last call."""
        changes, self._changes = self._changes, Changes()
        return changes

    def __bool__(self) -> bool:
        return bool(self._segments)

    def _append(self, groups: pl.DataFrame, level: int) -> None:
        segment = _segment(self._next_number, level, groups)
        self._next_number += 1
        self._segments.append(segment)
        self._changes.new.append(segment)

    def _remove(self, segment: ColumnarSegment) -> None:
        self._segments.remove(segment)
        if segment in self._changes.new:
            self._changes.new.remove(segment)
        else:
            self._changes.gone.append(segment.number)

    def _of_last_level(self) -> list[ColumnarSegment]:
        level = self._segments[-1].level
        return [segment for segment in self._segments if segment.level == level]


def windows_of_key(plan: ColumnPlan, groups: Sequence[pl.DataFrame], key: Key) -> list[tuple[Window, Any]]:
    """The windows of a key in several groups frames, ordered by end, each with its accumulator of the row form."""
    mine = [frame.filter(plan.of_key(key)) for frame in groups]
    mine = [frame for frame in mine if frame.height]
    found = [(group.window, group.acc) for _, group in plan.row_groups(plan.merge(mine))] if mine else []
    return sorted(found, key=lambda each: (each[0].end, each[0].start))


def in_order_of_time(groups: pl.DataFrame) -> pl.DataFrame:
    """Groups by the ends of their windows: results of a key come as timers fire, however far the watermark has jumped.
    Mostly there is one end, and nothing to sort."""
    ends = groups[END]
    return groups if ends.min() == ends.max() else groups.sort(END, maintain_order=True)


def _segment(number: int, level: int, groups: pl.DataFrame) -> ColumnarSegment:
    ends = groups[END]
    return ColumnarSegment(number, level, groups, ends.min() if len(ends) else MAX_TIME, ends.max() if len(ends) else 0)  # type: ignore[arg-type]
