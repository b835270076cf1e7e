"""Look-backs in columns: the records that a shard keeps, and the aggregates of those before each
due record.

A record lies in a columnar segment from when it comes until no later one looks back to it. Its time
decides whether it waits, or has been taken because the watermark has passed it. So nothing is
written again as it comes due. Records that have left all look-backs go when segments are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millwheel.core.aggregates.columns import ColumnAggregate, Inexact, OverRanges
from millwheel.core.aggregates.families.rows import content
from millwheel.core.aggregates.record_entries import ranks_of
from millwheel.core.columns.batch import ColumnBatch, Int64s
from millwheel.core.columns.few_groups import Groups, frame_of
from millwheel.core.columns.groups_frame import COUNT, KEY
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.segments import ColumnarSegment
from millwheel.core.columns.state.codes import KeyCodes
from millwheel.core.columns.state.newest import compact
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.lazy_polars import kind_of, pl
from millwheel.core.model.times import MAX_TIME
from millwheel.core.rows.kept_records import AT, ROW, KeptRecords, Mask
from millwheel.core.rows.waiting import NEVER, TimelineSegments
from millwheel.core.windows.lateness import is_behind

MOST_SINGLY = 64
"""The most records of a look-back that aggregates process one by one, where the aggregate of a
range does not follow from those of its parts."""
_AT_ONCE = 1 << 20
"""The records of look-backs that one operation processes."""
_NUMBER = "number"


@dataclass(frozen=True, slots=True)
class LookbackColumns(KeptRecords):
    """Look-backs of ``size`` records (``by_rows``), or µs."""

    plan: ColumnPlan
    by_rows: bool
    size: int

    def fitting(self, batch: ColumnBatch, like: Any) -> Mask:
        """Which records columns can hold. Raises Inexact if they can hold none. ``like``: the type
        of the held rows (None: there are none)."""
        mask = self.clean(batch, like, self.most // 2)
        self.plan.check_exact(batch.frame.filter(pl.Series(mask)))
        return mask

    def taken(self, batch: ColumnBatch) -> pl.DataFrame:
        """Records that fit, in their kept form, without those that the condition leaves out."""
        condition = self.plan.condition
        if condition is not None:
            mask = batch.frame.select(condition.alias("")).to_series()
            if len(mask) != len(batch):  # of a constant
                mask = mask.new_from_index(0, len(batch))
            batch = batch.where(mask.to_numpy())
        return KeptRecords.taken(self, batch)

    def results(self, segments: Sequence[ColumnarSegment], watermark: int) -> ColumnBatch:
        """The records that the watermark has passed, each with its aggregates. There must be some.
        Raises Inexact."""
        keys = KeyCodes(_due_keys(segments, watermark))
        frames, codes, news = [], [], []
        for segment in segments:
            rows, own = keys.among(segment.groups[KEY])
            at = segment.groups[AT].to_numpy()[rows]
            passed = at < watermark
            frames.append(segment.groups[rows[passed]])
            codes.append(own[passed])
            news.append(at[passed] >= segment.fired)
        whole = pl.concat(frames, rechunk=True)
        of_key, new = np.concatenate(codes), np.concatenate(news)
        order = self._in_order(whole, of_key)
        whole, of_key, new = whole[order], of_key[order], new[order]
        last = np.flatnonzero(new)
        if self.by_rows:
            first = np.maximum(last - ranks_of(of_key)[last], last - self.size + 1)
            after = last + 1
        else:
            first, after = _in_range(whole[AT].to_numpy(), of_key, self.size)
            first, after = first[last], after[last]
        return self._batch(whole[last], self._aggregates(whole, first, after))

    # --- the order --------------------------------------------------------------------------------

    def _in_order(self, whole: pl.DataFrame, codes: Int64s) -> Int64s:
        """The indexes of the records, key by key and by time; records of one time by content, where
        each has a result of its own."""
        at = whole[AT].to_numpy()
        order = np.lexsort([at, codes])
        alike = np.zeros(len(order), np.bool_)
        alike[1:] = (np.diff(at[order]) == 0) & (np.diff(codes[order]) == 0)
        if not self.by_rows or not alike.any():
            return order
        groups = np.cumsum(~alike) - 1
        tied = np.flatnonzero(alike | np.append(alike[1:], False))
        rows = self._without_results(whole[order[tied]]).to_dicts()
        pairs = zip(groups[tied].tolist(), map(content, rows), range(len(rows)), strict=True)
        order[tied] = order[tied[[number for _, _, number in sorted(pairs)]]]
        return order

    def _without_results(self, whole: pl.DataFrame) -> pl.DataFrame:
        rows = whole[ROW].struct.unnest()
        return rows.select([name for name in rows.columns if name not in self.plan.names])

    # --- aggregates -------------------------------------------------------------------------------

    def _aggregates(self, whole: pl.DataFrame, first: Int64s, after: Int64s) -> pl.DataFrame:
        """The aggregates of the records from each ``first`` to before ``after``. Raises Inexact."""
        prepared = self.plan.prepared(whole[ROW].struct.unnest())
        spans = _spans(first, after)
        columns = [pl.Series(COUNT, after - first)]
        for aggregate in self.plan.aggregates:
            columns += _over(prepared, aggregate, first, after, spans)
        groups = pl.DataFrame(columns)
        if any(each.of_no_floats(groups) for each in self.plan.aggregates):
            raise Inexact  # their sum is a whole 0 in rows
        results = [each.result(groups) for each in self.plan.aggregates]
        pairs = zip(self.plan.names, results, strict=True)
        return pl.DataFrame([column.alias(name) for name, column in pairs])

    def _batch(self, chosen: pl.DataFrame, results: pl.DataFrame) -> ColumnBatch:
        keys = chosen[KEY]
        if not isinstance(keys.dtype, pl.Struct):
            keys = keys.alias(self.plan.key_names[0])
        rows = pl.concat([self._without_results(chosen), results], how="horizontal")
        return ColumnBatch("", np.array([], np.int64), chosen[AT].to_numpy(), keys, rows)


def _in_range(at: Int64s, codes: Int64s, size: int) -> tuple[Int64s, Int64s]:
    """For each of the ordered records, the first of its key that lies at most ``size`` µs before
    it, and the one behind those of its own time."""
    times, own = np.unique(at, return_inverse=True)
    # one number for each key and time, ordered as they are
    numbers = codes * len(times) + own
    since = codes * len(times) + np.searchsorted(times, at - size)
    return np.searchsorted(numbers, since), np.searchsorted(numbers, numbers, side="right")


def _spans(first: Int64s, after: Int64s) -> list[tuple[int, int]]:
    """Ranges of look-backs that are processed together, each from one to before another."""
    lengths = np.cumsum(after - first)
    bounds, start = [], 0
    while start < len(first):
        done = int(lengths[start - 1]) if start else 0
        end = int(np.searchsorted(lengths, done + _AT_ONCE, side="right"))
        bounds.append((start, max(end, start + 1)))
        start = bounds[-1][1]
    return bounds


def _over(
    prepared: pl.DataFrame,
    aggregate: ColumnAggregate,
    first: Int64s,
    after: Int64s,
    spans: Sequence[tuple[int, int]],
) -> list[pl.Series]:
    """The columns of an aggregate over the records of each look-back."""
    names = list(aggregate.dtypes)
    if aggregate.over_ranges is OverRanges.SUMS:
        return [_sums(prepared[name], first, after) for name in names]
    if aggregate.over_ranges is not OverRanges.UNKNOWN:
        largest = aggregate.over_ranges is OverRanges.LARGEST
        return [_extremes(prepared[name], first, after, largest) for name in names]
    some = []
    for start, end in spans:
        lengths = after[start:end] - first[start:end]
        numbers = np.repeat(np.arange(end - start), lengths)
        rows = np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        members = prepared.select(names)[rows + first[start:end][numbers]]
        lazy = members.lazy().group_by(pl.Series(_NUMBER, numbers), maintain_order=True)
        some.append(lazy.agg(aggregate.grouped()).select(names).collect(engine="in-memory"))
    columns: list[pl.Series] = pl.concat(some).get_columns()
    return columns


def _sums(column: pl.Series, first: Int64s, after: Int64s) -> pl.Series:
    none = pl.Series(column.name, [0], column.dtype)
    totals = pl.concat([none, column.cum_sum()])
    sums: pl.Series = totals.gather(after) - totals.gather(first)
    return sums


def _extremes(column: pl.Series, first: Int64s, after: Int64s, largest: bool) -> pl.Series:
    """The extreme of each range; null where it has none."""
    values = column.drop_nulls().unique().sort(descending=largest)
    ranks = column.replace_strict(
        values, np.arange(len(values)), default=None, return_dtype=pl.Int64
    )
    numbers = ranks.fill_null(len(values)).to_numpy()
    lengths = after - first
    levels = np.frexp(lengths.astype(np.float64))[1] - 1  # the whole logarithm of a length
    lowest, half = np.empty(len(first), np.int64), 0
    for level in range(int(levels.max(initial=0)) + 1):
        if level:  # the lowest of twice as many from each on
            numbers = np.minimum(numbers[:-half], numbers[half:])
        own, half = levels == level, 1 << level
        lowest[own] = np.minimum(numbers[first[own]], numbers[after[own] - half])
    found = pl.Series(np.where(lowest < len(values), lowest, -1)).replace(-1, None)
    extremes: pl.Series = values.gather(found).alias(column.name)
    return extremes


# --- state ----------------------------------------------------------------------------------------


def _due_keys(segments: Sequence[ColumnarSegment], watermark: int) -> pl.Series:
    """The key of each record that the watermark has passed, and that waits."""
    due = [
        segment.groups.filter((pl.col(AT) >= segment.fired) & (pl.col(AT) < watermark))[KEY]
        for segment in segments
        if is_behind(segment.first - 1, watermark)
    ]
    keys: pl.Series = pl.concat(due)
    return keys


class LookbackSegments(TimelineSegments):
    """The kept records of a shard: records that wait, and taken records in the look-backs of later
    ones, of ``size`` records (``by_rows``) or µs. ``fan`` segments of one size become one."""

    def __init__(self, by_rows: bool, size: int, fan: int) -> None:
        super().__init__(fan)
        self._by_rows, self._size = by_rows, size

    @property
    def row_type(self) -> Any:
        """The type of the rows that are held; None for none."""
        return self._segments[0].groups.schema[ROW] if self._segments else None

    def due_keys(self, watermark: int) -> pl.Series:
        """The keys of records that the watermark has passed. There must be some."""
        return _due_keys(self._segments, watermark).unique()

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Several segments as one, without records that have left all look-backs."""
        whole = pl.concat(groups, rechunk=True)
        at = whole[AT].to_numpy()
        if not self._by_rows:
            return compact(whole, at + self._size >= self.closed)
        codes = KeyCodes(whole[KEY]).of_records
        old = np.flatnonzero(at < self.closed)
        order = old[np.lexsort([~at[old], codes[old]])]
        # records of one time stay together: their content decides which of them comes first
        begins = np.flatnonzero(np.diff(codes[order], prepend=-1) | np.diff(at[order], prepend=0))
        behind = np.repeat(ranks_of(codes[order])[begins], np.diff(begins, append=len(order)))
        stays = np.ones(whole.height, np.bool_)
        stays[order[behind >= self._size - 1]] = False
        return compact(whole, stays)

    def _bounds(self, groups: Groups, fired: int) -> tuple[int, int]:
        at = frame_of(groups)[AT].to_numpy()
        later = at[at >= fired]
        last = NEVER
        if not self._by_rows and len(at):  # a record later than that has none of them before it
            last = min(int(at.max()) + self._size + 1, MAX_TIME)
        return (int(later.min()) + 1 if len(later) else NEVER), last


@dataclass(slots=True)
class LookbackForm:
    """The column form of look-backs of ``size`` records (``by_rows``) or µs, by the types of the
    fields of these. ``most``: the most bytes of an entry of the row form."""

    plans: PlansByType
    by_rows: bool
    size: int
    most: int
    _columns: dict[tuple[tuple[str, str], ...], LookbackColumns | None] = field(
        default_factory=dict
    )

    def of(self, rows: Any) -> LookbackColumns | None:
        """The form for records of this type; None where there is none."""
        fields = {each.name: kind_of(each.dtype) for each in rows.fields}
        types = tuple(fields.items())
        if types not in self._columns:
            plan = self.plans.plan(fields)
            columns = None
            if plan is not None:
                columns = LookbackColumns(
                    plan=plan, fields=fields, most=self.most, by_rows=self.by_rows, size=self.size
                )
            self._columns[types] = columns
        return self._columns[types]
