"""Enrichment as of event time in columns: the version for each due record.

A version lies in a columnar segment from when it comes until a later one of its key has been taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from millwheel.core.columns.batch import ColumnBatch, Int64s
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.segments import ColumnarSegment
from millwheel.core.columns.state.codes import KeyCodes
from millwheel.core.lazy_polars import dtype, pl
from millwheel.core.pipeline.work import Missing
from millwheel.core.rows.kept_records import AT, ROW, Mask
from millwheel.core.rows.waiting import (
    CHANNEL,
    NEVER,
    NUMBER,
    WaitingColumns,
    WaitingSegments,
    channel_ranks,
    due_of,
    indexes_in_order,
)

VERSION = "version"


class VersionSegments(WaitingSegments):
    """Records that wait for their version, versions that wait, and the last taken version of each
    key."""

    def _of_use(self, whole: pl.DataFrame) -> Mask:
        stays = WaitingSegments._of_use(self, whole)
        taken = np.flatnonzero(is_version(whole) & ~stays)
        if len(taken):
            stays[taken[_last_of_each(whole[taken])]] = True  # in force
        return stays

    def _waiting_times(self, groups: pl.DataFrame) -> Int64s:
        times: Int64s = groups[AT].to_numpy()[~is_version(groups)]
        return times

    def _gone_at(self, groups: pl.DataFrame, times: Int64s) -> int:
        return NEVER if len(times) < groups.height else int(times[-1]) + 1

    def _together(self) -> list[ColumnarSegment]:
        """Records apart from versions, which stay."""
        names = self._segments[-1].groups.columns
        return [each for each in super()._together() if each.groups.columns == names]


def is_version(groups: pl.DataFrame) -> Mask:
    """Which of the groups are versions."""
    if ROW not in groups.columns:
        return np.ones(groups.height, np.bool_)
    if VERSION not in groups.columns:
        return np.zeros(groups.height, np.bool_)
    mask: Mask = groups[VERSION].is_not_null().to_numpy()
    return mask


def versions_of(groups: pl.DataFrame) -> pl.DataFrame:
    """The versions among the groups."""
    mask = is_version(groups)
    return groups if mask.all() else groups.filter(pl.Series(mask))


def records_of(groups: pl.DataFrame) -> pl.DataFrame:
    """The groups that are not versions."""
    mask = is_version(groups)
    return groups.filter(pl.Series(~mask)) if mask.any() else groups


def last_versions(versions: pl.DataFrame) -> pl.DataFrame:
    """The last version of each key, of one time the last one by channel and number."""
    return versions[_last_of_each(versions)]


def _last_of_each(versions: pl.DataFrame) -> Int64s:
    """The indexes of the last versions of the keys."""
    codes = KeyCodes(versions[KEY]).of_records
    order = _in_order(versions, codes)
    return order[np.flatnonzero(np.diff(codes[order], append=-1))]


def _in_order(versions: pl.DataFrame, codes: Int64s) -> Int64s:
    """The indexes of versions in the order of keys, and then of their times."""
    ranks = channel_ranks(versions[CHANNEL])
    keys = [versions[NUMBER].to_numpy(), ranks, versions[AT].to_numpy(), codes]
    order: Int64s = np.lexsort(keys)
    return order


@dataclass(frozen=True, slots=True)
class EnrichedDue:
    """The records that have come due: ``batch`` has them with their versions, ``unmatched`` counts
    those that are dropped, and ``apart`` are the keys of records without a result."""

    batch: ColumnBatch
    unmatched: int
    apart: pl.Series


@dataclass(frozen=True, slots=True)
class EnrichPlan:
    """An enrichment with the ``versions`` of a stream, by the names of streams: the columns of its
    records, and the fields of its key. The version becomes the field ``name``."""

    columns: Mapping[str, WaitingColumns]
    keys: Mapping[str, tuple[str, ...]]
    versions: str
    name: str
    missing: Missing
    needs: frozenset[str] = frozenset()
    whole: bool = True

    @property
    def records(self) -> str:
        """The stream that is enriched."""
        return next(stream for stream in self.columns if stream != self.versions)

    def results(self, segments: Sequence[ColumnarSegment], watermark: int) -> EnrichedDue | None:
        """The results of the records that the watermark has passed; None for no record."""
        due = [records_of(due_of(segment, watermark)) for segment in segments]
        due = [each for each in due if each.height]
        if not due:
            return None
        whole = pl.concat([each.drop(VERSION, strict=False) for each in due], how="diagonal")
        whole = whole[indexes_in_order(whole)]
        found = self._found(whole, segments, watermark)
        has_version = found.is_not_null().to_numpy()
        apart = whole[KEY].clear()
        if self.missing is Missing.DEAD_LETTER and not has_version.all():
            apart = whole[KEY].filter(pl.Series(~has_version)).unique()
        stays = np.ones(len(has_version), np.bool_) if self.missing is Missing.KEEP else has_version
        frame = whole[ROW].struct.unnest().with_columns(found.alias(self.name))
        batch = ColumnBatch(
            "", np.array([], np.int64), whole[AT].to_numpy(), self._named(whole[KEY]), frame
        )
        return EnrichedDue(batch if stays.all() else batch.where(stays), int((~stays).sum()), apart)

    def _named(self, keys: pl.Series) -> pl.Series:
        names = self.keys[self.records]
        return keys if len(names) > 1 else keys.alias(names[0])

    def _found(
        self, records: pl.DataFrame, segments: Sequence[ColumnarSegment], watermark: int
    ) -> pl.Series:
        """The version of each record, null for none."""
        keys = KeyCodes(records[KEY])
        parts, codes = [], []
        for segment in segments:
            if VERSION not in segment.groups.columns:
                continue
            passed = int(np.searchsorted(segment.groups[AT].to_numpy(), watermark))
            versions = versions_of(segment.groups[:passed])
            rows, own = keys.among(versions[KEY])
            parts.append(versions[rows].drop(ROW, strict=False))
            codes.append(own)
        if not parts:
            types = {name: dtype(kind) for name, kind in self.columns[self.versions].fields.items()}
            return pl.Series([None] * records.height, dtype=pl.Struct(types))
        versions, of_key = pl.concat(parts, how="diagonal"), np.concatenate(codes)
        order = _in_order(versions, of_key)
        at = self._last_before(records, keys.of_records, versions[order], of_key[order])
        positions = pl.Series(np.where(at < 0, 0, order[at] if len(order) else 0), dtype=pl.UInt32)
        positions = positions.set(pl.Series(at < 0), None)
        found: pl.Series = versions[VERSION].gather(positions)
        return found

    def _last_before(
        self, records: pl.DataFrame, codes: Int64s, versions: pl.DataFrame, of_key: Int64s
    ) -> Int64s:
        """The index of the version of each record among the ordered versions; -1 for none."""
        if not versions.height:
            return np.full(len(codes), -1)
        times, own = np.unique(versions[AT].to_numpy(), return_inverse=True)
        size = len(times) + 1
        # one number for each key and time, ordered as they are; times count from 1
        passed = np.searchsorted(times, records[AT].to_numpy(), side="right")
        last = np.searchsorted(of_key * size + own + 1, codes * size + passed, side="right") - 1
        found: Int64s = np.where((last >= 0) & (of_key[last] == codes), last, -1)
        return found
