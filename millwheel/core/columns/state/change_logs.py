"""The groups of a change log in columns.

A bundle adds a columnar segment with the whole groups of the keys that it has changed, which
replace those in older segments. So a group of which nothing is left can begin anew, at another time
than it had: it stays as one without records until nothing older is left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from millwheel.core.columns.few import Groups, frame_of
from millwheel.core.columns.groups_frame import COUNT, END, KEY
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.newest import NewestOfKey
from millwheel.core.columns.windows import LastingSegments
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key


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

    def of_keys(self, keys: pl.Series) -> pl.DataFrame | None:
        """The groups of some keys; None for none."""
        wanted = keys.alias(KEY).to_frame()
        frames = [self._looked_at(segment.groups) for segment in self._segments]
        parts = [frame.join(wanted, on=KEY, how="semi") for frame in frames]
        parts = [part for part in parts if part.height]
        if not parts:
            return None
        held = pl.concat(parts)
        if len(parts) > 1:
            held = held.unique(KEY, keep="last", maintain_order=True)
        held = there(held)
        return held if held.height else None

    def _looked_at(self, groups: pl.DataFrame) -> pl.DataFrame:
        """What :meth:`of_keys` has of groups."""
        return groups

    def counted(self, old: pl.DataFrame | None, new: pl.DataFrame) -> pl.DataFrame:
        """The groups of a bundle as they are added. They are put together with ``old``, what
        :meth:`of_keys` has of them, which stands first."""
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


def there(groups: pl.DataFrame) -> pl.DataFrame:
    """The groups that have records."""
    return groups.filter(pl.col(COUNT) != 0)


def accumulators_of(plan: ColumnPlan, segments: Sequence[pl.DataFrame], key: Key) -> list[Any]:
    """The accumulator of the group of a key, in a list; none for no group."""
    frames = [frame.filter(plan.of_key(key)) for frame in segments]
    frames = [frame for frame in frames if frame.height]
    if not frames:
        return []
    newest = newest_and_all(pl.concat(frames), KEY, [each.listed for each in plan.counting])
    return [group.acc for _, group in plan.row_groups(there(newest))]


def newest_and_all(groups: pl.DataFrame, by: str, listed: Collection[str]) -> pl.DataFrame:
    """One row for each value of ``by``: the last of each column, and all that is ``listed``."""
    alone = [pl.col(name).last() for name in groups.columns if name not in (by, *listed)]
    every = [pl.col(name).explode().drop_nulls() for name in listed]
    together = groups.lazy().group_by(by, maintain_order=True).agg(*alone, *every)
    return together.select(groups.columns).collect(engine="in-memory")
