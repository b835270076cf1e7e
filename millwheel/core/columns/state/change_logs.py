"""The groups of a change log in columns.

A bundle adds a columnar segment with the whole groups of the keys that it has changed, which
replace those in older segments. So a group that has lost all its records can begin anew at another
time: it stays, without records, until nothing older is left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import Int64s, key_list
from millwheel.core.columns.few_groups import Groups, frame_of
from millwheel.core.columns.groups import GroupsPlan
from millwheel.core.columns.groups_frame import COUNT, END, KEY, START
from millwheel.core.columns.segments import LastingSegments
from millwheel.core.columns.state.newest import NewestOfKey
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.windows.lateness import is_behind
from millwheel.core.windows.windows import Forever

_BEFORE = "before"


class LastingGroups(LastingSegments):
    """Groups without an end."""

    apart = 1

    def __init__(self) -> None:
        super().__init__(NewestOfKey())

    def undivided(self) -> list[tuple[int, pl.DataFrame]]:
        """All groups, those first whose newest record is the oldest."""
        return [(fired, there(groups).sort(END)) for fired, groups in super().undivided()]

    def all_groups(self) -> pl.DataFrame:
        return there(super().all_groups())

    @property
    def example(self) -> pl.DataFrame | None:
        """Some groups, of which all others have the types; None for none."""
        return self._segments[-1].groups if self._segments else None

    def by_type(self) -> list[list[pl.DataFrame]]:
        """The groups of the segments, those of one type together: a merge of shards may have
        brought whole records of several."""
        by_type: dict[str, list[pl.DataFrame]] = {}
        for segment in self._segments:
            by_type.setdefault(str(segment.groups.schema), []).append(segment.groups)
        return list(by_type.values())

    def late_until(self, watermark: int) -> int:
        """No record is late."""
        return MIN_TIME

    def entering(self, groups: Groups, watermark: int) -> Groups:
        """The groups of a bundle, as they are held."""
        return groups

    def of_keys(self, keys: pl.Series) -> pl.DataFrame | None:
        """The groups of some keys, each given once; None for none."""
        needed = keys.alias(KEY).to_frame()
        parts: list[pl.DataFrame] = []
        for segment in reversed(self._segments):
            part = self._looked_at(segment.groups).join(needed, on=KEY, how="semi")
            if part.height:
                parts.insert(0, part)
            if part.height == needed.height:
                break  # older segments have nothing newer of any of them
        if not parts:
            return None
        held = pl.concat(parts)
        if len(parts) > 1:
            held = held.unique(KEY, keep="last", maintain_order=True)
        held = there(held)
        return held if held.height else None

    def _looked_at(self, groups: pl.DataFrame) -> pl.DataFrame:
        """The columns of groups that :meth:`of_keys` returns."""
        return groups

    def forget(self, watermark: int) -> None:
        """Forget the groups without a record for too long, if groups are ever forgotten."""

    def going_on(
        self, old: pl.DataFrame | None, new: pl.DataFrame
    ) -> tuple[pl.DataFrame | None, list[Key]]:
        """The groups of ``old`` that the groups of a bundle continue, and the keys whose records
        may belong to more than one group: these are processed one by one."""
        return old, []

    def counted(self, old: pl.DataFrame | None, new: pl.DataFrame) -> pl.DataFrame:
        """The groups of a bundle as they are added. They are merged with ``old``, their groups from
        :meth:`of_keys`, which stand first."""
        return new

    def outgrown(self, groups: pl.DataFrame) -> list[Key]:
        """The keys of groups that are too large for columns."""
        return []

    def together(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The groups of parts of segments, in the order of these."""
        return there(self._plan.merge(parts))

    def _merge(self, several: Sequence[Groups]) -> Groups:
        whole = frame_of(super()._merge(several))
        return whole if self._segments else there(whole)


class FleetingGroups(LastingGroups):
    """Groups that are forgotten once the watermark is ``ttl_us`` beyond their newest record.

    Forgotten groups are never found, even while they are stored: a segment goes once all of it is
    forgotten, and single groups go when segments are merged. The groups of a key in older segments
    are older, so they are not found again. The next group of a key replaces the rest of the one
    before.
    """

    def __init__(self, ttl_us: int) -> None:
        super().__init__()
        self._ttl_us = ttl_us
        self._watermark = MIN_TIME

    def due_at(self) -> int:
        last = min((segment.last for segment in self._segments), default=MAX_TIME)
        return min(last - 1 + self._ttl_us, MAX_TIME)

    def forget(self, watermark: int) -> None:
        self._watermark = watermark
        for segment in self.segments():
            if is_behind(segment.last - 1 + self._ttl_us, watermark):
                self._remove(segment)

    def of_keys(self, keys: pl.Series) -> pl.DataFrame | None:
        held = super().of_keys(keys)
        held = None if held is None else self._remembered(held)
        return held if held is not None and held.height else None

    def undivided(self) -> list[tuple[int, pl.DataFrame]]:
        return [(fired, self._remembered(groups)) for fired, groups in super().undivided()]

    def all_groups(self) -> pl.DataFrame:
        return self._remembered(super().all_groups())

    def together(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return self._remembered(super().together(parts))

    def going_on(
        self, old: pl.DataFrame | None, new: pl.DataFrame
    ) -> tuple[pl.DataFrame | None, list[Key]]:
        newest, first = new[END].to_numpy() - 1, new[START].to_numpy()
        if old is not None:
            times = old.select(KEY, pl.col(END).alias(_BEFORE) - 1)
            joined = new.select(KEY, START).join(times, on=KEY, how="left", maintain_order="left")
            before = joined.select(pl.coalesce(_BEFORE, START)).to_series().to_numpy()
            # As ChangeLogMachine.spans_lives of each group.
            goes_on = ~self._is_over(before, first)
            first = np.where(goes_on, np.minimum(before, first), first)
            old = old.join(new.filter(pl.Series(goes_on)).select(KEY), on=KEY, how="semi")
        spanning = new[KEY].filter(pl.Series(self._is_over(first, newest)))
        return old if old is not None and old.height else None, key_list(spanning)

    def _is_over(self, before: Int64s, at: Int64s) -> npt.NDArray[np.bool_]:
        """Whether a time is too far behind another one. (As unsigned numbers they may be as far
        apart as times can be.)"""
        apart = at.view(np.uint64) - before.view(np.uint64)
        over: npt.NDArray[np.bool_] = (at > before) & (apart > np.uint64(self._ttl_us))
        return over

    def _merge(self, several: Sequence[Groups]) -> Groups:
        return self._remembered(frame_of(super()._merge(several)))

    def _remembered(self, groups: pl.DataFrame) -> pl.DataFrame:
        return remembered(groups, self._ttl_us, self._watermark)


def remembered(groups: pl.DataFrame, ttl_us: int, watermark: int) -> pl.DataFrame:
    """The groups that are not forgotten at a watermark."""
    return groups.filter(pl.col(END) - 1 >= max(watermark - ttl_us, MIN_TIME))


def there(groups: pl.DataFrame) -> pl.DataFrame:
    """The groups that have records."""
    return groups.filter(pl.col(COUNT) != 0)


def accumulators_of(
    plan: GroupsPlan, segments: Sequence[pl.DataFrame], key: Key, watermark: int
) -> list[Any]:
    """The accumulator of the group of a key, in a list; none for no group."""
    frames = [frame.filter(plan.of_key(key)) for frame in segments]
    frames = [frame for frame in frames if frame.height]
    if not frames:
        return []
    newest = newest_and_all(pl.concat(frames), KEY, [each.listed for each in plan.counting])
    if isinstance(plan.window, Forever) and plan.window.ttl is not None:
        newest = remembered(newest, plan.window.ttl, watermark)
    return [group.acc for _, group in plan.row_groups(there(newest))]


def newest_and_all(groups: pl.DataFrame, by: str, listed: Collection[str]) -> pl.DataFrame:
    """One row for each value of ``by``: the last of each column, and all that is ``listed``."""
    alone = [pl.col(name).last() for name in groups.columns if name not in (by, *listed)]
    every = [pl.col(name).explode().drop_nulls() for name in listed]
    together = groups.lazy().group_by(by, maintain_order=True).agg(*alone, *every)
    return together.select(groups.columns).collect(engine="in-memory")
