"""The groups of a change log in columns: those of bundles, which are parts of the groups of their
keys.

A bundle adds a columnar segment, as in windows. What a key has as a whole is put together when the
bundle has records of it: that is what its next version is made of.
"""

from __future__ import annotations

from millwheel.core.columns.groups_frame import END, KEY
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.windows import LastingSegments
from millwheel.core.lazy_polars import pl


class LastingGroups(LastingSegments):
    """Groups without an end."""

    apart = 1

    def undivided(self) -> list[tuple[int, pl.DataFrame]]:
        """All groups, those first whose newest record is the oldest."""
        return [(fired, groups.sort(END)) for fired, groups in super().undivided()]

    def with_groups(self, plan: ColumnPlan, new: pl.DataFrame) -> pl.DataFrame:
        """The whole groups of the keys that a bundle has groups of, which are not added."""
        keys = new.select(KEY)
        parts = [
            segment.groups.join(keys, on=KEY, how="semi", maintain_order="left")
            for segment in self.segments()
        ]
        held = [part for part in parts if part.height]
        return plan.merge([*held, new]) if held else new
