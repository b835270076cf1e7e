"""Which records may wait in columns, and their form there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millwheel.core.aggregates.columns import Unfit
from millwheel.core.columns.batch import ColumnBatch, Int64s
from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.stateless.stages import ColumnStep
from millwheel.core.lazy_polars import kind_of, pl
from millwheel.core.model.keys import Key
from millwheel.core.ranked.kept_records import AT, FLAT_KINDS, KeptRecords, Mask
from millwheel.core.ranked.latest import DELETED_FIELD
from millwheel.core.waiting.segments import CHANNEL, NUMBER, by_time
from millwheel.core.windows.panes import RETRACTION_FIELD

_KEY_KINDS = frozenset({"int", "str"})


@dataclass(frozen=True, slots=True)
class KeyTypes:
    """The parts of a key, and its type as a column."""

    key_names: tuple[str, ...]
    key_dtype: Any
    kinds: tuple[tuple[str, str], ...] = ()

    @property
    def key_types(self) -> dict[str, Any]:
        """The type of each part."""
        types = [field.dtype for field in self.key_dtype.fields] if len(self.key_names) > 1 else []
        return dict(zip(self.key_names, types or [self.key_dtype], strict=True))


@dataclass(frozen=True, slots=True)
class WaitingColumns(KeptRecords):
    """Records of one stream with these ``fields``, in the column ``column``. What ``deletes`` keeps
    is no row, but says that its key has none: rows take it."""

    column: str
    deletes: ColumnStep | None = None

    def fitting(self, batch: ColumnBatch, like: Any) -> Mask:
        """Which records columns hold. Raises Unfit where none is. ``like``: the type of those that
        are held (None: of none)."""
        mask = self.clean(batch, like, self.most // 2)
        if self.deletes is not None:
            fits, deleted = self.deletes.keeping(batch.frame)
            mask &= fits & ~deleted
        return mask

    def holds(self, rows: Any, keys: Any) -> bool:
        names = [field.name for field in rows.fields]
        return DELETED_FIELD not in names and KeptRecords.holds(self, rows, keys)

    def waiting(self, batch: ColumnBatch, channel: str, numbers: Int64s) -> pl.DataFrame:
        """Records that fit, as they are kept. ``numbers`` are those in their channel."""
        rows = batch.frame.to_struct(self.column)
        columns = [
            batch.keys.alias(KEY),
            pl.Series(AT, batch.timestamps),
            pl.Series(NUMBER, numbers, pl.Int64),
            rows,
        ]
        return by_time(pl.DataFrame(columns).with_columns(pl.lit(channel).alias(CHANNEL)))


@dataclass(frozen=True, slots=True)
class AnyWaitingColumns(WaitingColumns):
    """The same for records with any fields, and any keys, that come in columns."""

    def holds(self, rows: Any, keys: Any) -> bool:
        kinds = {field.name: kind_of(field.dtype) for field in rows.fields}
        odd = RETRACTION_FIELD in kinds or any(map(is_pattern, kinds))
        parts = [field.dtype for field in keys.fields] if isinstance(keys, pl.Struct) else [keys]
        keyed = {*map(kind_of, parts)} <= _KEY_KINDS
        return bool(kinds) and {*kinds.values()} <= FLAT_KINDS and keyed and not odd

    def in_columns(
        self, stream: str, keys: Sequence[Key], values: Sequence[Any], times: Sequence[int]
    ) -> tuple[ColumnBatch, Mask]:
        raise Unfit


def numbers_of(seqs: Any) -> Int64s:
    """The numbers of records in their channel."""
    numbers: Int64s = np.asarray(seqs, np.int64)
    return numbers
