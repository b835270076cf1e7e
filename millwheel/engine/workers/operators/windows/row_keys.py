"""The keys of a shard that are in rows while others are in columns, and those that have to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.columns_to_rows import is_among, keys_like, where
from millwheel.core.lazy_polars import pl
from millwheel.core.model.damage import is_failure
from millwheel.core.model.keys import Key
from millwheel.core.windows.calls import Group
from millwheel.engine.workers.delivery.inbox import Arrival

MOST_KEYS = 100_000
"""More keys are not remembered: then the whole shard goes on in rows."""
_FEW = 64
"""Records of which all go by rows, without a search for those that columns cannot hold."""


class KeysInRows:
    """The keys in rows while others are in columns."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._column: pl.Series | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Iterable[Key]) -> None:
        """Add keys that have left the columns."""
        self._keys.update(keys)
        self._column = None

    def clear(self) -> None:
        """Forget all keys: rows have no window any more that is to fire."""
        self._keys.clear()
        self._column = None

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def among(self, keys: pl.Series) -> npt.NDArray[np.bool_]:
        """Which keys of a column are in rows."""
        if self._column is None or self._column.dtype != keys.dtype:
            self._column = keys_like(list(self._keys), keys.dtype)
        return is_among(keys, [self._column])

    def of_batch(self, batch: AnyBatch) -> npt.NDArray[np.bool_]:
        """Which records of a batch are in rows."""
        if isinstance(batch, ColumnBatch):
            return self.among(batch.keys)
        return np.fromiter((key in self._keys for key in batch.keys), np.bool_, len(batch))

    def divide(self, arrivals: Iterable[Arrival]) -> tuple[list[Arrival], list[Arrival]]:
        """The arrivals with the records of all other keys, and those with the records of these."""
        others, selected = [], []
        for arrival in arrivals:
            if not len(arrival.batch):
                continue
            mask = self.of_batch(arrival.batch)
            if not mask.all():
                others.append(replace(arrival, batch=where(arrival.batch, ~mask)))
            if mask.any():
                selected.append(replace(arrival, batch=where(arrival.batch, mask)))
        return others, selected

    def divide_groups(self, groups: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The same for groups."""
        mask = pl.Series(self.among(groups[KEY]))
        return groups.filter(~mask), groups.filter(mask)


def odd_keys(batch: AnyBatch, plan: ColumnPlan) -> set[Key]:
    """The keys of records that columns cannot hold, and of a few that lie near to them. Of records
    in rows, all."""
    if not isinstance(batch, ColumnBatch):
        return set(batch.keys)
    clean, rest = plan.divide(batch)
    keys = set() if rest is None else set(key_list(rest.keys.unique()))
    return keys | _odd_keys(clean, plan)


def _odd_keys(batch: ColumnBatch, plan: ColumnPlan) -> set[Key]:
    try:
        plan.group(batch)
    except BaseException as ex:
        if not is_failure(ex):
            raise
        if len(batch) <= _FEW:
            return set(key_list(batch.keys.unique()))
        first = np.arange(len(batch)) < len(batch) // 2
        return _odd_keys(batch.where(first), plan) | _odd_keys(batch.where(~first), plan)
    return set()


def odd_groups(
    groups: Sequence[tuple[Key, Group]], plan: ColumnPlan, like: pl.DataFrame | None = None
) -> set[Key]:
    """The same of groups that came in rows; ``like``: as :meth:`.ColumnPlan.from_row_groups`."""
    try:
        if groups:
            plan.from_row_groups(groups, like)
    except BaseException as ex:
        if not is_failure(ex):
            raise
        if len(groups) <= _FEW:
            return {key for key, _ in groups}
        half = len(groups) // 2
        return odd_groups(groups[:half], plan, like) | odd_groups(groups[half:], plan, like)
    return set()
