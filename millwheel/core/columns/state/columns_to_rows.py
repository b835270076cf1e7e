"""The move of state from columns to rows: key by key, some in each bundle.

From the first key that has left, a record goes to the form that has its key, or its key leaves
first. So every key is in one of the two forms, after any bundle, crash or merge of shards in
between.

To take some keys out of all segments would write these again for each part. So the groups are first
put into segments that have all that the columns hold of their keys, and each of these leaves whole,
with the groups that have come since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, fits_key, key_list
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.segments import ColumnarSegment, ColumnarSegments
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key, key_bytes

PART_RECORDS = 8_000
"""The number of groups, or records of a join, that leave in one bundle: each costs some 30 µs in
rows."""
_PART, _ROW, _COUNT = "part", "row", "count"
_WHOLE = 1 << 20  # Fixed: the level of segments that have all that the columns hold of their keys
_REST = 1 << 19  # Fixed: the level of groups that stay as others leave; it is not merged with more


@dataclass(frozen=True, slots=True)
class Left:
    """Groups that columns no longer hold, in the order of arrival. Those of windows up to ``fired``
    have fired."""

    groups: pl.DataFrame
    fired: int


class Leaving:
    """Takes keys out of the segments in columns (``held``)."""

    def __init__(self, held: ColumnarSegments) -> None:
        self._held = held

    def next_part(self) -> list[Left]:
        """The groups of some keys, which the columns no longer hold; nothing if they hold
        nothing."""
        if not self._held:
            return []
        if not self._whole():
            self._divide()
        return self._first()

    @property
    def begun(self) -> bool:
        """Whether some keys have left, while others stay."""
        return bool(self._whole())

    def next_oldest(self, most_bytes: int) -> list[Left]:
        """The same for the keys whose newest record is the oldest: about so many bytes stay."""
        if not self._whole():
            self._divide_oldest(most_bytes / max(1, self._held.size()))
        return self._first()

    def oldest(self, most_bytes: int) -> list[Left]:
        """All groups of the keys whose newest record is the oldest, which the columns no longer
        hold: about so many bytes stay."""
        keys = all_keys([segment.groups for segment in self._held.segments()])
        leave = _oldest(keys, most_bytes / max(1, self._held.size()))
        return self.taken_out([leave])

    def _first(self) -> list[Left]:
        whole = self._whole()
        return self.taken_out([whole[0].groups[KEY].unique()]) if whole else []

    def _whole(self) -> list[ColumnarSegment]:
        return [segment for segment in self._held.segments() if segment.level == _WHOLE]

    def taken_out(self, keys: Sequence[pl.Series]) -> list[Left]:
        """All groups of some keys, which the columns no longer hold."""
        parts = []
        for segment in self._held.segments() if keys else ():
            mask = is_among(segment.groups[KEY], keys)
            if mask.any():
                parts.append(
                    Left(
                        segment.groups.filter(pl.Series(mask)),
                        max(segment.fired, self._held.closed),
                    )
                )
                self._held.cut(segment, segment.groups.filter(pl.Series(~mask)))
        return parts

    def stays(self, batches: Iterable[AnyBatch]) -> list[npt.NDArray[np.bool_]]:
        """Which records of each batch have a key that the columns hold."""
        held = [segment.groups[KEY].unique() for segment in self._held.segments()]
        return [is_among(keys_of(batch), held) for batch in batches]

    def _divide(self) -> None:
        undivided = self._undivided()
        self._held.clear()
        self._put_parts(undivided)

    def _divide_oldest(self, share: float) -> None:
        """Divide the oldest keys from the others, so that about this share stays."""
        undivided = self._undivided()
        self._held.clear()
        if not undivided:
            return
        leave = _oldest(pl.concat([whole[KEY] for _, whole in undivided]), share)
        masks = [is_among(whole[KEY], [leave]) for _, whole in undivided]
        pairs = list(zip(undivided, masks, strict=True))
        for (fired, whole), mask in pairs:
            rest = whole.filter(pl.Series(~mask))
            if rest.height:
                self._held.put(rest, _REST, fired)
        self._put_parts([(fired, whole.filter(pl.Series(mask))) for (fired, whole), mask in pairs])

    def _undivided(self) -> list[tuple[int, pl.DataFrame]]:
        """All groups, merged; those of no more use may be left out."""
        return [(fired, whole) for fired, whole in self._held.undivided() if whole.height]

    def _put_parts(self, undivided: Sequence[tuple[int, pl.DataFrame]]) -> None:
        parts = -(-sum(whole.height for _, whole in undivided) // PART_RECORDS)
        for fired, whole in undivided:
            numbers = whole[KEY].hash() % parts
            for part in whole.with_columns(numbers.alias(_PART)).partition_by(
                _PART, maintain_order=True
            ):
                self._held.put(part.drop(_PART), _WHOLE, fired)


def _oldest(keys: pl.Series, share: float) -> pl.Series:
    """The keys whose newest group is the oldest; ``keys`` are those of groups in the order of
    arrival. About this share of the groups has other keys."""
    by_key = (
        keys.to_frame(KEY)
        .with_row_index(_ROW)
        .group_by(KEY)
        .agg(pl.col(_ROW).max(), pl.len().alias(_COUNT))
        .sort(_ROW)
    )
    ahead = by_key[_COUNT].cum_sum() - by_key[_COUNT]
    return by_key.filter(ahead < int(by_key[_COUNT].sum()) * (1 - share))[KEY]


def all_keys(frames: Sequence[pl.DataFrame]) -> pl.Series:
    """The keys of all groups, one behind the other in one form. There are some groups."""
    keys = [frame[KEY] for frame in frames]
    alike = len({str(each.dtype) for each in keys}) == 1
    return pl.concat(keys if alike else list(map(_encoded, keys)))


def keys_of(batch: AnyBatch) -> pl.Series:
    """The keys of a batch as a column; those in rows encoded."""
    return batch.keys if isinstance(batch, ColumnBatch) else _encoded(batch.keys)


def encoded_keys(keys: Iterable[Key]) -> pl.Series:
    """Keys as a column of encoded ones."""
    return pl.Series(list(map(key_bytes, keys)), dtype=pl.Binary)


def keys_like(keys: Sequence[Key], kind: Any) -> pl.Series:
    """The keys that fit into a column of this type, as such a column."""
    if isinstance(kind, pl.Struct):
        fields = kind.fields
        fitting = [
            dict(zip((field.name for field in fields), key, strict=True))
            for key in keys
            if type(key) is tuple
            and len(key) == len(fields)
            and all(fits_key(part, field.dtype) for part, field in zip(key, fields, strict=True))
        ]
        return pl.Series(KEY, fitting, kind)
    return pl.Series(KEY, [key for key in keys if fits_key(key, kind)], kind)


def where(batch: AnyBatch, mask: npt.NDArray[np.bool_]) -> AnyBatch:
    """The records for which ``mask`` is true."""
    if mask.all():
        return batch
    return (
        batch.where(mask)
        if isinstance(batch, ColumnBatch)
        else batch.pick(np.flatnonzero(mask).tolist())
    )


def is_among(keys: pl.Series, others: Sequence[pl.Series]) -> npt.NDArray[np.bool_]:
    """Which keys are among others, in whichever form columns hold them."""
    mask = np.zeros(len(keys), np.bool_)
    for other in others:
        if keys.dtype == other.dtype:
            mask |= _is_in(keys, other)
        elif pl.Binary in (keys.dtype, other.dtype):
            mask |= _is_in(_encoded(keys), _encoded(other))
    return mask


def _is_in(keys: pl.Series, others: pl.Series) -> npt.NDArray[np.bool_]:
    mask = np.zeros(len(keys), np.bool_)
    rows = keys.alias(KEY).to_frame().with_row_index(_ROW)
    mask[rows.join(others.alias(KEY).unique().to_frame(), on=KEY, how="semi")[_ROW].to_numpy()] = (
        True
    )
    return mask


def _encoded(keys: pl.Series | Sequence[Key]) -> pl.Series:
    if isinstance(keys, pl.Series):
        if keys.dtype == pl.Binary:
            return keys
        keys = key_list(keys)
    return encoded_keys(keys)
