"""Records along time in columns: records that wait for the watermark, and taken records that are
still of use.

A bundle adds a segment, sorted by time. Whether a record of it waits or has been taken follows from
its time: the watermark has passed it. So a part of each segment comes due, and nothing is written
again for it. A segment goes once all of it is of no more use.

Records of one time come in the order of the names that they have in rows (record_order.py): by
channel, then by their number there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import ColumnBatch, Int64s
from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.few_groups import Groups, frame_of
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.segments import ColumnarSegment, ColumnarSegments, GroupsKind
from millwheel.core.columns.state.newest import compact
from millwheel.core.columns.stateless.stages import ColumnStep
from millwheel.core.lazy_polars import kind_of, pl
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.rows.kept_records import AT, FLAT_KINDS, ROW, KeptRecords, Mask
from millwheel.core.rows.latest import DELETED_FIELD
from millwheel.core.windows.lateness import is_behind, is_complete
from millwheel.core.windows.panes import RETRACTION_FIELD

NEVER = MAX_TIME + 1  # Fixed: no watermark gets there
CHANNEL, NUMBER = "channel", "number"


class TimelineSegments(ColumnarSegments):
    """Records that wait, and taken records that are still of use. ``fan`` segments of one size
    become one."""

    kind = GroupsKind.ORDERED
    apart = 1

    def __init__(self, fan: int) -> None:
        super().__init__(self, fan=fan)

    @abstractmethod
    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Several segments as one, without records of no more use."""

    @abstractmethod
    def _bounds(self, groups: Groups, fired: int) -> tuple[int, int]: ...

    def add(self, groups: Groups) -> None:
        super().add(groups)
        for segment in [each for each in self._segments if not each.held.height]:
            self._remove(segment)

    def restore(
        self, number: int, level: int, groups: pl.DataFrame, watermark: int, fired: int = MIN_TIME
    ) -> None:
        self._next_number = max(self._next_number, number + 1)
        self.closed = max(self.closed, watermark)
        self._take_stored(number, level, groups, max(watermark, fired))

    @property
    def taken_until(self) -> int:
        """The time before which a record would come too late: later ones have been taken."""
        return max([self.closed, *(segment.fired for segment in self._segments)])

    def take(self, watermark: int) -> None:
        """Mark the records that the watermark has passed as taken."""
        self.closed = max(self.closed, watermark)
        for segment in self.segments():
            segment.fired = max(segment.fired, watermark)
            if is_complete(segment.last, watermark):
                self._remove(segment)
            elif is_behind(segment.first - 1, watermark):
                segment.first, segment.last = self._bounds(segment.groups, segment.fired)

    def _together(self) -> list[ColumnarSegment]:
        # a merged shard, another part of which has taken more: wait until all have taken as much
        if self.taken_until > self.closed:
            return []
        return super()._together()

    def due_at(self) -> int:
        """As before, and when the first segment goes."""
        gone = min((segment.last - 1 for segment in self._segments), default=MAX_TIME)
        return min(self.fires_at(), gone)


class WaitingSegments(TimelineSegments):
    """Records that are of no use once they have been taken. All frames are sorted by time."""

    def row_type(self, column: str = ROW) -> Any:
        """The type of the records in a column; None for none."""
        for segment in self._segments:
            if column in segment.groups.schema:
                return segment.groups.schema[column]
        return None

    def due(self, watermark: int) -> list[pl.DataFrame]:
        """The records that the watermark has passed, and that wait, by segment."""
        return [
            due_of(segment, watermark)
            for segment in self._segments
            if is_behind(segment.first - 1, watermark)
        ]

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        whole = pl.concat(groups, how="diagonal", rechunk=True)
        whole = compact(whole, self._of_use(whole))
        return by_time(whole)

    def _of_use(self, whole: pl.DataFrame) -> Mask:
        """Which records wait, or are still of use."""
        waits: Mask = whole[AT].to_numpy() >= self.closed
        return waits

    def _bounds(self, groups: Groups, fired: int) -> tuple[int, int]:
        at = self._waiting_times(frame_of(groups))
        waits = int(np.searchsorted(at, fired))
        first = int(at[waits]) + 1 if waits < len(at) else NEVER
        return first, self._gone_at(frame_of(groups), at)

    def _waiting_times(self, groups: pl.DataFrame) -> Int64s:
        """The times, in order, at which records come due."""
        times: Int64s = groups[AT].to_numpy()
        return times

    def _gone_at(self, groups: pl.DataFrame, times: Int64s) -> int:
        """The time at which all of a segment is of no more use."""
        return int(times[-1]) + 1


def by_time(records: pl.DataFrame) -> pl.DataFrame:
    """Records sorted by time."""
    at = records[AT].to_numpy()
    return records if (at[1:] >= at[:-1]).all() else records[np.argsort(at, kind="stable")]


def due_of(segment: ColumnarSegment, watermark: int) -> pl.DataFrame:
    """The records of a segment that the watermark has passed, and that wait."""
    groups = segment.groups
    first, after = np.searchsorted(groups[AT].to_numpy(), [segment.fired, watermark]).tolist()
    return groups[first : max(first, after)]


def indexes_in_order(records: pl.DataFrame) -> Int64s:
    """The indexes of records in the order in which they come: by time, channel and number."""
    at = records[AT].to_numpy()
    order = np.lexsort([records[NUMBER].to_numpy(), channel_ranks(records[CHANNEL]), at])
    indexes: Int64s = order
    return indexes


def channel_ranks(channels: pl.Series) -> Int64s:
    """Numbers in the order of the names of channels, with which the tags of rows begin."""
    names = channels.unique().to_list()
    if len(names) < 2:
        return np.zeros(len(channels), np.int64)
    names.sort(key=lambda name: f"{name}:")  # as a tag goes on behind it
    ranks = channels.replace_strict(names, np.arange(len(names)), return_dtype=pl.Int64)
    return ranks.to_numpy()  # type: ignore[no-any-return]


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
    """Records of one stream with these ``fields``, in the column ``column``. Those that ``deletes``
    keeps delete the row of their key: rows take them."""

    column: str
    deletes: ColumnStep | None = None

    def fitting(self, batch: ColumnBatch, like: Any) -> Mask:
        """Which records columns can hold. Raises Inexact if they can hold none. ``like``: the type
        of the held records (None: there are none)."""
        mask = self.clean(batch, like, self.most // 2)
        if self.deletes is not None:
            fits, deleted = self.deletes.keeping(batch.frame)
            mask &= fits & ~deleted
        return mask

    def holds(self, rows: Any, keys: Any) -> bool:
        names = [field.name for field in rows.fields]
        return DELETED_FIELD not in names and KeptRecords.holds(self, rows, keys)

    def waiting(self, batch: ColumnBatch, channel: str, numbers: Int64s) -> pl.DataFrame:
        """Records that fit, in their kept form. ``numbers`` are those in their channel."""
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
        raise Inexact


def numbers_of(seqs: Any) -> Int64s:
    """The numbers of records in their channel."""
    numbers: Int64s = np.asarray(seqs, np.int64)
    return numbers
