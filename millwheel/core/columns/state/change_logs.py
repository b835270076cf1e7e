"""The groups of a change log in columns.

A bundle adds a columnar segment with the whole groups of the keys that it has changed, which
replace those in older segments. So a group of which nothing is left can begin anew, at another time
than it had: it stays as one without records until nothing older is left.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        parts = [segment.groups.join(wanted, on=KEY, how="semi") for segment in self._segments]
        parts = [part for part in parts if part.height]
        if not parts:
            return None
        held = pl.concat(parts)
        if len(parts) > 1:
            held = held.unique(KEY, keep="last", maintain_order=True)
        held = there(held)
        return held if held.height else None

    def _merge(self, several: Sequence[Groups]) -> Groups:
        whole = frame_of(super()._merge(several))
        return whole if self._segments else there(whole)


def there(groups: pl.DataFrame) -> pl.DataFrame:
    """The groups that have records."""
    return groups.filter(pl.col(COUNT) != 0)


def accumulators_of(plan: ColumnPlan, segments: Sequence[pl.DataFrame], key: Key) -> list[Any]:
    """The accumulator of the group of a key, in a list; none for no group."""
    frames = [frame.filter(plan.of_key(key)) for frame in segments]
    newest = [frame for frame in frames if frame.height][-1:]
    return [group.acc for frame in newest for _, group in plan.row_groups(there(frame))]
