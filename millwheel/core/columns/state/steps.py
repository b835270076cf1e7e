"""The key windows of all keys of a shard, in columns.

The records of one step of the slide are a group, which *enters* the window of its key where the
step ends, and *leaves* it a window's size later. The result of a key at a point is that of the
groups that have entered and not left, and can change only where one enters or leaves. So when the
watermark has passed some points, the result of a key is computed where a group enters or leaves,
and at the time of the watermark before, for the result before these. Results that differ from the
one before are the steps that are emitted.

Sums over ranges of points are differences of running totals, which are exact. Extremes are spread
over the points by halves: each group covers its points with two blocks of a power of two, and each
block hands on to the two smaller ones in it. Neither takes longer where a window has many steps.
Nothing else is kept from one watermark to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.columns import ColumnAggregate, Inexact, OverRanges
from millwheel.core.columns.few_groups import FewGroups, Groups, ends_of, starts_of
from millwheel.core.columns.groups import GroupsPlan
from millwheel.core.columns.groups_frame import COUNT, END, KEY, START, in_order_of_time
from millwheel.core.columns.segments import GroupsKind
from millwheel.core.columns.state.windows import ColumnWindows
from millwheel.core.lazy_polars import pl
from millwheel.core.model.times import MIN_TIME
from millwheel.core.windows.lateness import is_complete, still_open
from millwheel.core.windows.windows import Sliding, Window

_Int64s = npt.NDArray[np.int64]
_FAR = 2**62  # Fixed: beyond, points may not fit into 64 bits
_NUMBER = "number"


class StepColumns(ColumnWindows):
    """See the head of this file. A group enters at its start, and leaves at its end."""

    kind = GroupsKind.STEPS
    apart = 1

    def __init__(self, plan: GroupsPlan, window: Sliding, closed: int) -> None:
        super().__init__(plan)
        self._aggregation = plan
        self._window = window
        self.closed = closed  # the steps up to this time were emitted

    def late_until(self, watermark: int) -> int:
        """A group is late when the last window that it is in has closed."""
        return max(watermark - self._window.size + self._window.every, MIN_TIME)

    def entering(self, groups: Groups, watermark: int) -> Groups:
        """Records behind the watermark enter at the first point that is ahead of it."""
        ends = ends_of(groups)
        if groups.height and not -_FAR < ends.min() <= ends.max() < _FAR:
            raise Inexact
        every = self._window.every
        ahead = min(max(watermark, -_FAR), _FAR)
        ahead += every - (ahead - self._window.offset) % every
        if isinstance(groups, FewGroups):
            size = self._window.size
            return groups.in_windows(
                lambda window: Window(max(window.end, ahead), window.end + size)
            )
        enters = pl.max_horizontal(pl.col(END), pl.lit(ahead)).alias(START)
        return groups.with_columns(enters, pl.col(END) + self._window.size)

    def close(self, watermark: int) -> pl.DataFrame | None:
        """The steps up to ``watermark``, each at the end of its window, in order of time."""
        steps = None
        if any(is_complete(segment.first, watermark) for segment in self._segments):
            groups = pl.concat([segment.groups for segment in self._segments])
            steps = steps_between(self._aggregation, self._window, groups, self.closed, watermark)
        self.closed = max(self.closed, watermark)
        if steps is not None:
            self._forget(list(self._segments), watermark)
        return steps

    def open_windows(self, of_key: pl.Expr) -> list[Window]:
        """One for each point at which the result of the key may change."""
        if not self:
            return []
        bounds = self.all_groups().filter(of_key)
        points = {*bounds.filter(still_open(pl.col(START), self.closed))[START], *bounds[END]}
        return [Window(point - self._window.size, point) for point in sorted(points)]

    def _bounds(self, groups: Groups, fired: int) -> tuple[int, int]:
        starts, ends = starts_of(groups), ends_of(groups)
        ahead = starts[still_open(starts, self.closed)]
        return int(min(ends.min(), ahead.min() if len(ahead) else ends.min())), int(ends.max())


def entered(groups: pl.DataFrame, closed: int) -> pl.DataFrame:
    """Groups of a shard that has emitted its steps up to ``closed``, as an owner that has emitted
    less can hold them."""
    inside = ~still_open(pl.col(START), closed)
    return groups.with_columns(
        pl.when(inside).then(pl.lit(MIN_TIME, pl.Int64)).otherwise(pl.col(START)).alias(START)
    )


# --- steps ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ranges:
    """The points at which groups are inside, from ``first`` on and before ``after``. Points are
    ordered by key and time."""

    count: int
    first: _Int64s
    after: _Int64s


def steps_between(
    plan: GroupsPlan, window: Sliding, groups: pl.DataFrame, closed: int, watermark: int
) -> pl.DataFrame | None:
    """The results after ``closed``, up to ``watermark``, that differ from those before them; None
    for no point at which one could. Raises Inexact."""
    points = _points(groups, closed, watermark)
    if not points.height:
        return None
    keys = points.select(KEY).unique(maintain_order=True).with_row_index(_NUMBER)
    points = _numbered(points, keys)
    groups = _numbered(groups, keys)
    times = np.unique(np.append(points[END].to_numpy(), closed))
    # One number for each key and time: the first of a key is that of ``closed``, the time before
    # all of its points.
    before = np.arange(keys.height, dtype=np.int64) * len(times)
    at = _codes(points, END, times)
    codes = np.sort(np.concatenate([before, at]))
    ranges = _Ranges(
        len(codes),
        np.searchsorted(codes, _codes(groups, START, times)),
        np.searchsorted(codes, _codes(groups, END, times)),
    )
    ends = times[codes % len(times)]
    columns = [
        keys[KEY].gather(codes // len(times)),
        pl.Series(START, ends - window.size),
        pl.Series(END, ends),
    ]
    columns += [_sums(groups[COUNT], ranges)]
    for aggregate in plan.aggregates:
        columns += [_over(groups[name], aggregate, ranges).alias(name) for name in aggregate.dtypes]
    frame = pl.DataFrame(columns).select(list(plan.schema))
    results = plan.results(frame)
    differs = pl.any_horizontal(
        pl.col(name).ne_missing(pl.col(name).shift()) for name in plan.names
    )
    steps = frame.filter(results.select(differs).to_series() & pl.Series(codes % len(times) > 0))
    return in_order_of_time(steps)


def _points(groups: pl.DataFrame, closed: int, watermark: int) -> pl.DataFrame:
    """(key, time) of all points to look at."""
    passed = [
        groups.select(KEY, pl.col(name).alias(END)).filter(
            still_open(pl.col(END), closed), ~still_open(pl.col(END), watermark)
        )
        for name in (START, END)
    ]
    return pl.concat(passed).unique(maintain_order=True)


def _numbered(frame: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    """The rows of these keys, with the numbers of their keys."""
    return frame.join(keys, on=KEY, how="inner", maintain_order="left")


def _codes(frame: pl.DataFrame, column: str, times: _Int64s) -> _Int64s:
    """One number for each row, ordered as (key, time) is."""
    return frame[_NUMBER].to_numpy().astype(np.int64) * len(times) + np.searchsorted(
        times, frame[column].to_numpy()
    )


def _over(column: pl.Series, aggregate: ColumnAggregate, ranges: _Ranges) -> pl.Series:
    """At each point a column of an aggregate over the groups that are inside."""
    if aggregate.over_ranges is OverRanges.SUMS:
        return _sums(column, ranges)
    return _extremes(column, ranges, aggregate.over_ranges is OverRanges.LARGEST)


def _sums(column: pl.Series, ranges: _Ranges) -> pl.Series:
    """The groups that have entered less those that have left."""
    inside = [
        _running(column, ranges.first, ranges.count),
        _running(column, ranges.after, ranges.count),
    ]
    total: pl.Series = inside[0] - inside[1]
    return total


def _running(column: pl.Series, at: _Int64s, count: int) -> pl.Series:
    """At each point the sum of the values at or before it."""
    order = np.argsort(at, kind="stable")
    totals = pl.concat(
        [pl.Series([0], dtype=column.dtype).alias(column.name), column[order].cum_sum()]
    )
    running: pl.Series = totals.gather(np.searchsorted(at[order], np.arange(count), side="right"))
    return running


def _extremes(column: pl.Series, ranges: _Ranges, largest: bool) -> pl.Series:
    """The extremes of the groups inside; null where there is none."""
    values = column.drop_nulls().unique().sort(descending=largest)
    used = column.is_not_null().to_numpy() & (ranges.first < ranges.after)
    order = (
        column.filter(pl.Series(used))
        .to_frame()
        .join(
            values.to_frame().with_row_index(_NUMBER),
            on=column.name,
            how="left",
            maintain_order="left",
        )
    )
    lowest = _lowest(
        order[_NUMBER].to_numpy().astype(np.int64),
        ranges.first[used],
        ranges.after[used],
        ranges.count,
    )
    indices = pl.Series(np.where(lowest < len(values), lowest, -1))
    inside: pl.Series = values.gather(indices.replace(-1, None)).alias(column.name)
    return inside


def _lowest(numbers: _Int64s, first: _Int64s, after: _Int64s, count: int) -> _Int64s:
    """For each of ``count`` points the lowest number of a range ``[first, after)`` around it."""
    none = np.iinfo(np.int64).max
    levels = np.frexp((after - first).astype(np.float64))[1] - 1  # the whole logarithm of a length
    lowest = np.full(count, none, np.int64)
    for level in range(int(levels.max(initial=0)), -1, -1):
        half = 1 << level
        handed = lowest.copy()
        if level < levels.max(initial=0):
            np.minimum(handed[half:], lowest[: count - half], out=handed[half:])
        lowest = handed
        mask = levels == level
        np.minimum.at(lowest, first[mask], numbers[mask])
        np.minimum.at(lowest, after[mask] - half, numbers[mask])
    return lowest
