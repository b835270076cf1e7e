"""Which keys of a shard are in columns, and which in rows, where each key is in one form.

Few records are as quick in rows, so a shard takes whole bundles from the first that is worth it.
What only small bundles come for goes on in rows, and so do the keys without a new record for the
longest time once columns hold much: some keys in each bundle
(:mod:`millwheel.core.columns.state.columns_to_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.columns.segments import ColumnarSegments
from millwheel.core.columns.state.columns_to_rows import Leaving, Left, is_among, keys_like, where
from millwheel.core.model.keys import Key
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.inbox import Arrival

_SMALL_BUNDLES = 32
"""After so many small bundles in a row, what columns hold goes on in rows."""
_LOOKS = 64
"""Bundles between two looks whether any key is still in rows."""
Mask = npt.NDArray[np.bool_]


class FormChoice:
    """The form of the keys of a shard. Bundles of fewer than ``few`` records are small. Of more
    than ``most_bytes`` in columns, half go on in rows. ``has_rows`` asks the store whether any key
    is in rows."""

    def __init__(
        self, kept: ColumnarSegments, few: int, most_bytes: int, has_rows: Callable[[], bool]
    ) -> None:
        self.leaving = Leaving(kept)
        self.in_rows = True
        """All keys are, or leave the columns."""
        self.some_in_rows = has_rows()
        """Whether some keys may be in rows, while others are in columns."""
        self._kept = kept
        self._few = few
        self.most_bytes = most_bytes
        self._has_rows = has_rows
        self._small = 0
        """Small bundles, one behind the other."""
        self._looks_in = _LOOKS

    @property
    def room(self) -> bool:
        """Whether keys may come back from rows without others having to go."""
        return self._kept.size() < self.most_bytes // 2

    def choose(self, count: int) -> None:
        """Choose the form of a bundle of so many records."""
        if not count:
            return
        self._small = 0 if count >= self._few else self._small + 1
        if self._small > _SMALL_BUNDLES or (self._small and not self._kept):
            self.in_rows = True
        elif not self._small:
            self.in_rows = False
        self._looks_in -= 1
        if self._looks_in < 0:
            self._looks_in = _LOOKS
            self.some_in_rows = self._has_rows()

    def in_columns(
        self, batches: Sequence[AnyBatch], held: Callable[[list[Key]], Collection[Key]]
    ) -> list[Mask]:
        """Which records of each batch have a key that is, or goes, in columns. ``held`` gives those
        of some keys that are in rows."""
        if self.in_rows and not self._kept:
            return [np.zeros(len(batch), np.bool_) for batch in batches]
        if self.in_rows:
            return self.leaving.stays(batches)
        if self.some_in_rows:
            return [~_stored(batch, held) for batch in batches]
        return [np.ones(len(batch), np.bool_) for batch in batches]

    def took_in_rows(self, arrivals: Iterable[Arrival]) -> None:
        """Records that were taken in rows."""
        self.some_in_rows |= any(len(arrival.batch) for arrival in arrivals)

    def leave(self, count: int) -> Iterator[list[Left]]:
        """Parts of what goes on in rows behind a bundle of ``count`` records: in the long run as
        many as the bundles bring. The caller keeps each in rows before it asks for the next."""
        if self.in_rows:
            yield self.leaving.next_part()
            return
        left = 0
        while left <= count and (self.leaving.begun or self._kept.size() > self.most_bytes):
            segments = self.leaving.next_oldest(self.most_bytes // 2)
            left += sum(segment.groups.height for segment in segments)
            yield segments


def _stored(batch: AnyBatch, held: Callable[[list[Key]], Collection[Key]]) -> Mask:
    """Which records of a batch have a key that is in rows."""
    if isinstance(batch, ColumnBatch):
        among = held(key_list(batch.keys.unique()))
        return is_among(batch.keys, [keys_like(list(among), batch.keys.dtype)])
    among = held(list(set(batch.keys)))
    return np.fromiter((key in among for key in batch.keys), np.bool_, len(batch))


def left_in(bundle: Bundle, taken: Sequence[Mask]) -> None:
    """Only what was not taken is left in a bundle."""
    bundle.arrivals = [
        replace(arrival, batch=where(arrival.batch, ~mask))
        for arrival, mask in zip(bundle.arrivals, taken, strict=True)
    ]
    if bundle.traced is not None:
        bundle.traced.records = [
            replace(each, arrival=-1)
            if taken[each.arrival][each.index]
            else replace(each, index=int((~taken[each.arrival][: each.index]).sum()))
            for each in bundle.traced.records
        ]
