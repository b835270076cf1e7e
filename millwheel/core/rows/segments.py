"""The first rows of the keys of a shard, in columns: how they are kept, and how a bundle changes
them.

A bundle adds a columnar segment with all rows of the keys that it has changed, which replace those
of these keys in older segments. Replaced rows go when segments are merged.

Columns hold only exact values: fields of declared kinds, and floats that are numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.candidates import RowCandidates
from millwheel.core.aggregates.families.rows import content
from millwheel.core.aggregates.record_entries import in_order, ranks_of, sort_columns
from millwheel.core.columns.batch import ColumnBatch, Int64s, key_list
from millwheel.core.columns.changes import retractions_of
from millwheel.core.columns.few_groups import Groups
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.segments import LastingSegments
from millwheel.core.columns.state.codes import KeyCodes
from millwheel.core.columns.state.newest import NewestOfKey, compact, newest_of
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.work import TopSpec
from millwheel.core.rows.kept_records import AT, ROW, KeptRecords, Mask
from millwheel.core.windows.panes import RETRACTION_FIELD


@dataclass(frozen=True, slots=True)
class Changed:
    """The keys that some records change: all their rows now, the rows that are taken back, with the
    mark, and the new ones."""

    rows: pl.DataFrame
    gone: ColumnBatch
    new: ColumnBatch


@dataclass(frozen=True, slots=True)
class FirstColumns(KeptRecords):
    """The ``order`` of a :class:`TopSpec`. Rows of a key take at most ``most`` bytes."""

    plan: ColumnPlan
    spec: TopSpec
    order: RowCandidates

    def fitting(self, batch: ColumnBatch, like: Any) -> Mask:
        """Which records columns can hold and have a place in the order. Raises Inexact if none has.
        ``like``: the type of the held rows (None: there are none)."""
        mask = self.clean(batch, like, self.most // self.spec.k)
        exact = self.order.exact
        if exact:  # some expressions fail on values that do not fit
            checks = batch.frame.filter(pl.Series(mask)).select(pl.all_horizontal(exact).alias(""))
            mask[mask] = checks.to_series().to_numpy()
        return mask

    def changed(self, new: pl.DataFrame, kept: Sequence[pl.DataFrame]) -> Changed | None:
        """The changes that some records make to the kept segments; None for nothing."""
        keys = KeyCodes(new[KEY])
        hits, hit_codes = newest_of(keys, kept)
        whole = pl.concat([*hits, new], rechunk=True)
        codes = np.concatenate([*hit_codes, keys.of_records])
        old = whole.height - new.height
        order, ranks = self._ordered(whole, codes)
        stays = order[ranks < self.spec.k]
        changes = np.zeros(keys.count, np.bool_)
        changes[codes[stays[stays >= old]]] = True
        if not changes.any():
            return None
        after = stays[changes[codes[stays]]]
        was = order[order < old]
        before = was[changes[codes[was]]]
        differences = _Differences(self, whole, codes, before, after)
        gone, come = differences.of_ranks() if self.spec.rank else differences.of_rows()
        first, last = _spans(keys, new[AT].to_numpy())
        at = whole[AT].to_numpy()
        own = at[come[0]]
        times = np.where(own >= first[codes[come[0]]], own, last[codes[come[0]]])
        return Changed(
            compact(whole, after),
            self._batch(whole, *gone, last[codes[gone[0]]], back=True),
            self._batch(whole, *come, times),
        )

    # --- the order --------------------------------------------------------------------------------

    def _ordered(self, whole: pl.DataFrame, codes: Int64s) -> tuple[Int64s, Int64s]:
        """The indexes of the records, key by key and in order, and the rank of each, from 0."""
        rows = whole[ROW]
        return in_order(codes, self._orders(whole), self.spec.k, lambda some: rows[some].to_list())

    def _orders(self, whole: pl.DataFrame) -> list[npt.NDArray[Any]]:
        """Columns whose values are less the earlier a record of a key comes, but for its bytes."""
        fields, terms = whole[ROW].struct.unnest(), self.order.terms
        values = []
        for term in terms:
            column = fields.select(term.column.alias("")).to_series()
            if len(column) != whole.height:  # of a constant
                column = column.new_from_index(0, whole.height)
            values.append(column)
        at = whole[AT].to_numpy()
        kinds = [term.kind for term in terms]
        columns = sort_columns(values, kinds, self.order.descending)
        return [*columns, ~at if self.spec.latest else at]

    def _batch(
        self,
        whole: pl.DataFrame,
        indexes: Int64s,
        ranks: Int64s,
        times: Int64s,
        back: bool = False,
    ) -> ColumnBatch:
        """Productions: records with their ranks."""
        chosen = whole[indexes]
        rows = chosen[ROW].struct.unnest()
        if self.spec.rank:
            rows = rows.with_columns(pl.Series(self.spec.rank, ranks + 1, pl.Int64))
        keys = chosen[KEY]
        if not isinstance(keys.dtype, pl.Struct):
            keys = keys.alias(self.plan.key_names[0])
        return ColumnBatch(
            "", np.array([], np.int64), times, keys, retractions_of(rows) if back else rows
        )


class _Differences:
    """The changes to emit where the rows ``before`` become the rows ``after``, each by its index:
    the rows that go and those that come, with their ranks. A row whose content stays, at its rank
    if it has one, is in neither."""

    def __init__(
        self,
        columns: FirstColumns,
        whole: pl.DataFrame,
        codes: Int64s,
        before: Int64s,
        after: Int64s,
    ) -> None:
        self._whole = whole
        self._codes = codes
        self._before, self._after = before, after
        self._were, self._are = ranks_of(codes[before]), ranks_of(codes[after])
        self._k = columns.spec.k

    def of_ranks(self) -> tuple[tuple[Int64s, Int64s], tuple[Int64s, Int64s]]:
        """The changes where ranks are emitted."""
        before = self._codes[self._before] * self._k + self._were
        after = self._codes[self._after] * self._k + self._are
        _, ones, others = np.intersect1d(before, after, True, True)
        return self._without(ones, others, self._alike(self._before[ones], self._after[others]))

    def of_rows(self) -> tuple[tuple[Int64s, Int64s], tuple[Int64s, Int64s]]:
        """The changes where ranks are not emitted."""
        _, ones, others = np.intersect1d(self._before, self._after, True, True)
        goes, comes = np.ones(len(self._before), np.bool_), np.ones(len(self._after), np.bool_)
        goes[ones] = comes[others] = False
        gone, come = np.flatnonzero(goes), np.flatnonzero(comes)
        if self._k == 1:
            pairs = np.intersect1d(
                self._codes[self._before[gone]], self._codes[self._after[come]], True, True
            )
            left, right = gone[pairs[1]], come[pairs[2]]
        else:
            left, right = self._same_content(gone, come)
        alike = self._alike(self._before[left], self._after[right])
        return self._without(
            np.concatenate([ones, left]),
            np.concatenate([others, right]),
            np.concatenate([np.ones(len(ones), np.bool_), alike]),
        )

    def _same_content(self, gone: Int64s, come: Int64s) -> tuple[Int64s, Int64s]:
        """Pairs of a row that leaves and a row of the same key that comes, which may have the same
        content; each row is in one pair."""
        fields = self._whole[ROW].struct.unnest()
        codes = pl.Series(RETRACTION_FIELD, self._codes)
        of = fields.with_columns(codes)
        left, right = (
            of[indexes].hash_rows().to_numpy()
            for indexes in (self._before[gone], self._after[come])
        )
        maybe = np.flatnonzero(np.isin(left, right))
        rows = self._texts(self._before[gone[maybe]])
        by_content: dict[tuple[int, bytes], list[int]] = {}
        for number, row in zip(gone[maybe].tolist(), rows, strict=True):
            by_content.setdefault(row, []).append(number)
        ones, others = [], []
        for number in come[np.isin(right, left)].tolist():
            [row] = self._texts(self._after[[number]])
            if found := by_content.get(row):
                ones.append(found.pop())
                others.append(number)
        return np.array(ones, np.int64), np.array(others, np.int64)

    def _texts(self, indexes: Int64s) -> list[tuple[int, bytes]]:
        rows = self._whole[indexes][ROW].struct.unnest().to_dicts()
        return list(zip(self._codes[indexes].tolist(), map(content, rows), strict=True))

    def _alike(self, ones: Int64s, others: Int64s) -> Mask:
        """Whether the contents of rows are the same."""
        alike: Mask = ones == others
        unsure = np.flatnonzero(~alike)
        left, right = (
            self._whole[indexes[unsure]][ROW].struct.unnest() for indexes in (ones, others)
        )
        same = np.ones(len(unsure), np.bool_)
        for one, other in zip(left.get_columns(), right.get_columns(), strict=True):
            same &= one.eq_missing(other).to_numpy()
            if one.dtype == pl.Float64:  # -0.0 is another content than 0.0
                signs = (np.signbit(each.fill_null(0.0).to_numpy()) for each in (one, other))
                same &= next(signs) == next(signs)
        alike[unsure] = same
        return alike

    def _without(
        self, ones: Int64s, others: Int64s, alike: Mask
    ) -> tuple[tuple[Int64s, Int64s], tuple[Int64s, Int64s]]:
        goes, comes = np.ones(len(self._before), np.bool_), np.ones(len(self._after), np.bool_)
        goes[ones[alike]] = comes[others[alike]] = False
        return (self._before[goes], self._were[goes]), (self._after[comes], self._are[comes])


class FirstRowSegments(LastingSegments):
    """The kept rows of a shard. ``fan`` segments of one size become one."""

    apart = 1

    def __init__(self, fan: int) -> None:
        super().__init__(NewestOfKey(), fan=fan)

    @property
    def row_type(self) -> Any:
        """The type of the rows that are held; None for none."""
        return self._segments[0].groups.schema[ROW] if self._segments else None

    def _bounds(self, groups: Groups, fired: int) -> tuple[int, int]:
        return MAX_TIME, MAX_TIME


def rows_by_key(segments: Sequence[pl.DataFrame]) -> dict[Key, list[tuple[Any, int]]]:
    """The rows of each key in some segments, each with its time."""
    found: dict[Key, list[tuple[Any, int]]] = {}
    for frame in segments:
        of_segment: dict[Key, list[tuple[Any, int]]] = {}
        rows = zip(frame[ROW].struct.unnest().to_dicts(), frame[AT].to_list(), strict=True)
        for key, row in zip(key_list(frame[KEY]), rows, strict=True):
            of_segment.setdefault(key, []).append(row)
        found |= of_segment
    return found


def _spans(keys: KeyCodes, at: Int64s) -> tuple[Int64s, Int64s]:
    """The earliest and the latest of the records of each key."""
    order = np.argsort(keys.of_records, kind="stable")
    begins = np.flatnonzero(np.diff(keys.of_records[order], prepend=-1))
    return np.minimum.reduceat(at[order], begins), np.maximum.reduceat(at[order], begins)
