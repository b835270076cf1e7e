"""Slices from columns: all records of a bundle that lie in one slice of a key change its
accumulator at once.

The row form is the reference. It takes every bundle of which a record must be looked at by itself,
and the records of expired slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import ColumnBatch, joined
from millwheel.core.columns.forms.slices import SlicePlan
from millwheel.core.formats.store_layout import slice_prefix
from millwheel.core.model.keys import Key
from millwheel.engine.queries.slices import SliceAnswers, StoredSlice
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.slices.cells import SliceCells


@dataclass(frozen=True, slots=True)
class TakenSlices:
    """The outcome of a bundle in columns: whether a slice changed, and the records of expired
    slices."""

    changed: bool
    expired: ColumnBatch | None


class ColumnSlices:
    """The column form of slices."""

    def __init__(
        self, name: str, plan: SlicePlan, answers: SliceAnswers, cells: SliceCells, few: int
    ) -> None:
        self._few = few
        self._boundary = ColumnBoundary(name)
        self._plan = plan
        self._levels = [(level.number, plan.of_level(level)) for level in answers.levels]
        self._stored_key = answers.stored_key
        self._cells = cells
        self.bundles = 0

    def take(self, bundle: Bundle, expired_us: int) -> TakenSlices | None:
        """Add the records of a bundle. None, with nothing changed, when they must be looked at one
        by one, or are few."""
        batches = [arrival.batch for arrival in bundle.arrivals if len(arrival.batch)]
        columns = [batch for batch in batches if isinstance(batch, ColumnBatch)]
        if not columns or len(columns) < len(batches) or sum(map(len, columns)) < self._few:
            return None
        try:
            with self._boundary.inside(bundle.count):
                batch = self._plan.counted(joined(columns))
                expired = self._plan.ended(batch, expired_us)
                open_batch = batch if expired is None else batch.where(~expired)
                changed = bool(len(open_batch)) and self._merged(open_batch)
        except Inexact:  # for example a number that no column holds
            return None
        self.bundles += 1
        return TakenSlices(changed, None if expired is None else batch.where(expired))

    def _merged(self, batch: ColumnBatch) -> bool:
        try:
            return self._cells.merge(self._parts(batch))
        # an accumulator that is over its limit; one by one it shows which record makes it so
        except ValueError:
            raise Inexact from None

    def _parts(self, batch: ColumnBatch) -> Iterator[tuple[bytes, StoredSlice]]:
        """The store keys of slices of all levels, and the accumulator to merge into each."""
        stored_keys: dict[Key, bytes] = {}
        for number, plan in self._levels:
            prefixes: dict[int, bytes] = {}
            for group in plan.slices(batch):
                stored_key = stored_keys.get(group.key)
                if stored_key is None:
                    stored_key = stored_keys[group.key] = self._stored_key(group.key)
                prefix = prefixes.get(group.start_us)
                if prefix is None:
                    prefix = prefixes[group.start_us] = slice_prefix(number, group.start_us)
                yield prefix + stored_key, StoredSlice(group.newest_us, group.acc)
