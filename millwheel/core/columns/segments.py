"""Columnar segments: the state that a shard holds in columns for open windows (state/windows.py),
for a join or for a change log.

Each segment has the groups of one or more bundles. A bundle adds a segment. ``_FAN`` segments of
one size merge into one of the next size, so a group is rewritten only a few times, however many
bundles there are. Segments of a backlog, whose windows follow each other, mostly go before that. A
segment is one entry of the store, and goes with the last of its groups. Segments of small bundles
are in rows (few_groups.py) until they are merged into a larger one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Protocol

from millwheel.core.columns.few_groups import FewGroups, Groups, ends_of, frame_of, merged_rows
from millwheel.core.columns.groups_frame import END
from millwheel.core.lazy_polars import pl
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.windows.lateness import still_open
from millwheel.errors import InvariantError, invariant

Types = tuple[tuple[str, str], ...]
"""The types of fields, by name."""
_APART = 8
"""How many times ``_FAN`` segments of one size may be there if their windows are apart: merging
them would not make the groups fewer."""
_FAN = 8  # segments of one size that become one: each group is rewritten log8 times


class GroupsKind(IntEnum):
    """The kind of the groups of columnar segments, as stored."""

    WINDOWS = 0
    """Groups of one key and window in several segments are parts of one group."""
    SESSIONS = 1
    """A session replaces those in older segments that it overlaps."""
    STEPS = 2
    """Groups that enter key windows at their start and leave them at their end."""
    KEPT = 3
    """As windows, and they stay after they have fired."""
    LASTING = 4
    """Records, or the groups of a change log, that no watermark removes."""
    ORDERED = 5
    """Records that come one behind the other in time, and stay; those before the time up to which a
    segment has fired have been taken."""


@dataclass(slots=True, eq=False)
class ColumnarSegment:
    """Groups of bundles, ``held`` in rows or in columns. ``number`` is its name, ``level`` the
    number of merges behind it. It is first due once the watermark has passed ``first``, and all of
    it is gone at ``last``. Windows that stay after they have fired have fired up to ``fired``."""

    number: int
    level: int
    held: Groups
    first: int
    last: int
    fired: int = MIN_TIME

    @property
    def groups(self) -> pl.DataFrame:
        """Its groups as a frame."""
        return frame_of(self.held)


@dataclass(slots=True)
class Changes:
    """The changes of a bundle: the numbers of removed segments, and the new segments."""

    gone: list[int] = field(default_factory=list)
    new: list[ColumnarSegment] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SegmentsMark:
    """Segments as they were at one moment: each with a copy of its mutable parts, and the changes
    up to then."""

    segments: list[tuple[ColumnarSegment, ColumnarSegment]]
    gone: list[int]
    new: list[ColumnarSegment]
    cut: set[int]
    next_number: int
    closed: int


class MergesGroups(Protocol):
    """Merges groups frames: the plan of an aggregation, or a join."""

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame: ...


class ColumnarSegments:
    """The segments of a shard, in the order of arrival. ``types`` are the inferred types of
    undeclared fields. ``fan`` segments of one size become one.

    A subclass for a kind of groups defines when a segment is due (``_bounds``) and how several
    become one (``_merge``).
    """

    kind = GroupsKind.WINDOWS
    apart = _APART
    """See there; 1 where the order of segments counts."""
    lateness_us = 0
    """How long windows stay after they have fired."""
    closed = MIN_TIME
    """Up to which time windows have fired, where that makes a difference later."""

    def __init__(self, plan: MergesGroups, types: Types = (), fan: int = _FAN) -> None:
        self._plan = plan
        self._fan = fan
        self.types = types
        self._segments: list[ColumnarSegment] = []
        self._next_number = 0
        self._step = 1
        self._changes = Changes()
        self._cut: set[int] = set()

    def number_from(self, first: int, step: int) -> None:
        """New segments get every ``step``-th number: the others are those of other types."""
        self._next_number, self._step = first, step

    @property
    def next_number(self) -> int:
        """Beyond the numbers of all segments."""
        return self._next_number

    def mark(self) -> SegmentsMark:
        """The present state, to which :meth:`back_to` can return."""
        segments = [(segment, replace(segment)) for segment in self._segments]
        changes = self._changes
        return SegmentsMark(
            segments, [*changes.gone], [*changes.new], {*self._cut}, self._next_number, self.closed
        )

    def back_to(self, mark: SegmentsMark) -> None:
        """Undo what has changed since the mark."""
        for segment, before in mark.segments:
            segment.held, segment.fired = before.held, before.fired
            segment.first, segment.last = before.first, before.last
        self._segments = [segment for segment, _ in mark.segments]
        self._changes = Changes([*mark.gone], [*mark.new])
        self._cut, self._next_number = {*mark.cut}, mark.next_number
        if self.closed != mark.closed:
            self.closed = mark.closed

    def restore(
        self, number: int, level: int, groups: pl.DataFrame, watermark: int, fired: int = MIN_TIME
    ) -> None:
        """A columnar segment of the store, in order of numbers; windows up to ``watermark`` have
        closed, and those of this segment up to ``fired``."""
        self._next_number = max(self._next_number, number + 1)
        self._take_stored(
            number, level, groups.filter(still_open(pl.col(END), max(watermark, fired))), fired
        )

    def _take_stored(self, number: int, level: int, groups: pl.DataFrame, fired: int) -> None:
        # Later segments lie behind: of a key with rows in several segments, the last counts.
        before = self._segments[-1].number if self._segments else -1
        invariant(number > before, f"segment {number} is read from the store behind {before}")
        if groups.height:
            self._segments.append(
                ColumnarSegment(number, level, groups, *self._bounds(groups, fired), fired)
            )
        else:
            self._changes.gone.append(number)

    def go_on_with(self, plan: MergesGroups, types: Types) -> None:
        """Hold groups of another plan from here on. There are none at the moment."""
        invariant(not self._segments, "segments have the columns of another plan")
        self._plan, self.types = plan, types

    def add(self, groups: Groups) -> None:
        """Hold the groups of a bundle."""
        if not groups.height:
            return
        self._append(groups, 0)
        while len(together := self._together()) >= self._fan:
            # Where the merge raises Inexact these are gone: the operator goes back to its mark.
            for segment in together:
                self._remove(segment)
            merged = self._merge([segment.held for segment in together])
            if merged.height:
                self._append(merged, together[-1].level + 1)
            else:
                return

    def due_at(self) -> int:
        """Something is to be done once the watermark has passed this (MAX_TIME: never)."""
        return self.fires_at()

    def fires_at(self) -> int:
        """The first group fires once the watermark has passed this (MAX_TIME: there is none)."""
        return min((segment.first - 1 for segment in self._segments), default=MAX_TIME)

    def _keep(self, segment: ColumnarSegment, groups: Groups) -> None:
        """Replace the groups of a segment by those that are left; remove it if none are."""
        if not groups.height:
            self._remove(segment)
            return
        segment.held = groups
        segment.first, segment.last = self._bounds(groups, segment.fired)

    def _merge(self, several: Sequence[Groups]) -> Groups:
        """Several groups as one, in rows if all are in rows and few. Raises Inexact."""
        few = merged_rows(several)
        return self._plan.merge([frame_of(groups) for groups in several]) if few is None else few

    def _bounds(self, groups: Groups, fired: int) -> tuple[int, int]:
        """``first`` and ``last`` of a segment."""
        ends = ends_of(groups)
        return int(ends.min()), int(ends.max())

    def all_groups(self) -> pl.DataFrame:
        """All groups, those of a key and window as one."""
        return self._plan.merge([segment.groups for segment in self._segments])

    def size(self) -> int:
        """About how many bytes they take."""
        held = [segment.held for segment in self._segments]
        return sum(
            each.size() if isinstance(each, FewGroups) else int(each.estimated_size())
            for each in held
        )

    def clear(self) -> None:
        """Forget all groups."""
        for segment in list(self._segments):
            self._remove(segment)

    def take_changes(self) -> Changes:
        """The changes since the last call."""
        changes, self._changes = self._changes, Changes()
        # One that is new, and gone as well, would be deleted, and come back after a crash.
        if len({segment.number for segment in changes.new}) < len(changes.new):
            raise InvariantError("a columnar segment is written twice in one commit")
        self._cut.clear()
        return changes

    # --- groups that leave (see state/columns_to_rows.py) -----------------------------------------

    def segments(self) -> list[ColumnarSegment]:
        """All of them, in the order of arrival."""
        return list(self._segments)

    def undivided(self) -> list[tuple[int, pl.DataFrame]]:
        """All groups, by the time up to which they have fired."""
        groups_by_fired: dict[int, list[pl.DataFrame]] = {}
        for segment in self._segments:
            groups_by_fired.setdefault(max(segment.fired, self.closed), []).append(segment.groups)
        return [(fired, self._plan.merge(groups)) for fired, groups in groups_by_fired.items()]

    def put(self, groups: pl.DataFrame, level: int, fired: int) -> None:
        """Add a segment of a level, without merging it with others."""
        self._append(groups, level, fired)

    def cut(self, segment: ColumnarSegment, rest: pl.DataFrame) -> None:
        """Only the ``rest`` of a segment stays, in its place, also in the store."""
        self._keep(segment, rest)
        if rest.height and segment not in self._changes.new:
            self._changes.new.append(segment)
            self._cut.add(segment.number)

    def numbers(self) -> set[int]:
        """The numbers of the segments that the store has once the changes since
        :meth:`take_changes` are written, and of segments that are still to be removed from it.
        Raises InvariantError unless the bounds of each match its groups. For tests."""
        for segment in self._segments:
            bounds = self._bounds(segment.groups, segment.fired)
            at = (segment.first, segment.last)
            invariant(
                at == bounds,
                f"segment {segment.number} is due from {at[0]} to {at[1]}, its groups at {bounds}",
            )
        numbers = {segment.number for segment in self._segments}
        invariant(
            len(numbers) == len(self._segments),
            f"two segments have one number of {sorted(numbers)}",
        )
        return numbers | set(self._changes.gone)

    def __bool__(self) -> bool:
        return bool(self._segments)

    def _append(self, groups: Groups, level: int, fired: int | None = None) -> None:
        fired = self.closed if fired is None else fired
        segment = ColumnarSegment(
            self._next_number, level, groups, *self._bounds(groups, fired), fired
        )
        # They are stored by their numbers: one of two would overwrite the other.
        if self._segments and self._segments[-1].number >= segment.number:
            raise InvariantError(
                f"segment {segment.number} comes behind {self._segments[-1].number}"
            )
        self._next_number += self._step
        self._segments.append(segment)
        self._changes.new.append(segment)

    def _remove(self, segment: ColumnarSegment) -> None:
        self._segments.remove(segment)
        if segment in self._changes.new:
            self._changes.new.remove(segment)
            if segment.number not in self._cut:
                return
            self._cut.remove(segment.number)  # the store has it as it was
        self._changes.gone.append(segment.number)

    def _together(self) -> list[ColumnarSegment]:
        """The segments to merge, if they are enough: those of the size of the last one that have
        windows at its times. Others have no group in common with it, so some more of them may
        stay."""
        last = self._segments[-1]
        alike = [segment for segment in self._segments if segment.level == last.level]
        if len(alike) >= self._fan * self.apart:
            return alike
        return [
            segment
            for segment in alike
            if segment.first <= last.last and segment.last >= last.first
        ]


class LastingSegments(ColumnarSegments):
    """Segments that no watermark removes, not even the last one: groups without an end, and kept
    records. It stands before the other base classes."""

    kind = GroupsKind.LASTING

    def due_at(self) -> int:
        return MAX_TIME

    def fires_at(self) -> int:
        return MAX_TIME

    def restore(
        self, number: int, level: int, groups: pl.DataFrame, watermark: int, fired: int = MIN_TIME
    ) -> None:
        # As it is: at the end of the input the watermark has passed any end of a segment.
        self._next_number = max(self._next_number, number + 1)
        self._take_stored(number, level, groups, fired)
