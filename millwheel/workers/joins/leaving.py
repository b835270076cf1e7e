"""How the open windows of a join go on in rows: key by key, a part of them in each bundle.

From the first key that has left, a record goes where the others of its key are: to the columns while these hold any,
else to the rows. So every key is in one of the two forms, its records in the order of arrival, whatever a bundle, a
crash or a merge of shards does in between. No key goes back, so the columns are empty in the end.

To take some keys out of all segments would write these again for each part. So the records are first put into segments
that have all that the columns hold of their keys, and each of these leaves whole, with what has come since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.columns.lazy_polars import pl
from millwheel.core.columns.pairs import Pairing
from millwheel.core.columns.plan import KEY
from millwheel.core.columns.state.join_windows import JoinWindows
from millwheel.core.columns.windows import ColumnarSegment
from millwheel.core.model.keys import key_bytes

PART_RECORDS = 8_000
"""About so many records of open windows leave in one bundle: each costs some 30 µs in rows."""
_PART = "part"
_WHOLE = 1 << 20  # Fixed: the level of segments that have all that the columns hold of their keys


class Leaving:
    """Takes keys out of ``windows``."""

    def __init__(self, windows: JoinWindows, pairing: Pairing) -> None:
        self._windows = windows
        self._pairing = pairing

    def next_part(self) -> pl.DataFrame | None:
        """The records of some keys, which the columns no longer hold; None if they hold nothing."""
        if not self._windows:
            return None
        if not self._whole():
            self._divide()
        return self.taken_out(self._whole()[0].groups[KEY].unique())

    def _whole(self) -> list[ColumnarSegment]:
        return [segment for segment in self._windows.segments() if segment.level == _WHOLE]

    def taken_out(self, keys: pl.Series) -> pl.DataFrame | None:
        """All records of some keys, in the order of arrival, which the columns no longer hold."""
        found = []
        for segment in self._windows.segments():
            mine = is_among(segment.groups[KEY], [keys])
            if mine.any():
                found.append(segment.groups.filter(pl.Series(mine)))
                self._windows.cut(segment, segment.groups.filter(pl.Series(~mine)))
        return self._pairing.merge(found) if found else None

    def stays(self, batches: Iterable[AnyBatch]) -> list[npt.NDArray[np.bool_]]:
        """Which records of each batch have a key that the columns hold."""
        held = [segment.groups[KEY].unique() for segment in self._windows.segments()]
        return [is_among(keys_of(batch), held) for batch in batches]

    def _divide(self) -> None:
        whole = self._windows.all_groups()
        self._windows.clear()
        parts = -(-whole.height // PART_RECORDS)
        numbers = whole[KEY].hash() % parts
        for part in whole.with_columns(numbers.alias(_PART)).partition_by(_PART, maintain_order=True):
            self._windows.put(part.drop(_PART), _WHOLE)


def keys_of(batch: AnyBatch) -> pl.Series:
    """The keys of a batch as a column; those in rows encoded."""
    return batch.keys if isinstance(batch, ColumnBatch) else _encoded(batch.keys)


def where(batch: AnyBatch, mask: npt.NDArray[np.bool_]) -> AnyBatch:
    """The records for which ``mask`` is true."""
    if mask.all():
        return batch
    return batch.where(mask) if isinstance(batch, ColumnBatch) else batch.pick(np.flatnonzero(mask).tolist())


def is_among(keys: pl.Series, others: Sequence[pl.Series]) -> npt.NDArray[np.bool_]:
    """Which keys are among others, in whichever form columns hold them."""
    found = np.zeros(len(keys), np.bool_)
    for other in others:
        if keys.dtype == other.dtype and not isinstance(keys.dtype, pl.Struct):
            mine = keys.is_in(other.implode())
        else:
            mine = _encoded(keys).is_in(_encoded(other).implode())
        found |= mine.to_numpy()
    return found


def _encoded(keys: pl.Series | Sequence[object]) -> pl.Series:
    if isinstance(keys, pl.Series):
        if keys.dtype == pl.Binary:
            return keys
        keys = key_list(keys)
    return pl.Series(list(map(key_bytes, keys)), dtype=pl.Binary)
