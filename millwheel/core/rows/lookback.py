"""Aggregates of look-backs: of a record and those before it, up to a number of records or to a
distance in time.

Both ends of a look-back only move forward, so each result is made of three accumulators: one of the
records at the front, of which there is one for each record that may be the first; one of whole
blocks behind them; and one of the records that came last. When those at the front have left, the
next block follows, and behind the last block the records that came last. So a record is merged
about three times, however many look-backs it lies in, and nothing is subtracted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol, TypeVar

from millwheel.core.aggregates.aggregation import NamedAggregation, Prepared
from millwheel.core.model.damage import is_failure
from millwheel.errors import MillwheelError, RecordError, invariant

LookbackRow = tuple[int, Prepared]
"""(time in µs, a record as the aggregation has prepared it)."""
Found = dict[str, Any] | BaseException
"""The result of a look-back, or why there is none."""
Kept = TypeVar("Kept")
_time_of = itemgetter(0)


class PastRecords(Protocol):
    """Consecutive records that may not be in memory: their number, and their first and last
    times."""

    count: int
    first: int
    last: int

    def rows(self) -> Sequence[LookbackRow]:
        """The records."""

    def acc(self) -> Any:
        """An accumulator of them, which may be changed."""


class Lookback:
    """The look-back of one group. ``size`` is a number of records (``by_rows``) or µs. ``blocks``
    and ``recent`` are the records before the new ones; the first ``gone`` have left already."""

    def __init__(
        self,
        aggregation: NamedAggregation,
        by_rows: bool,
        size: int,
        blocks: Sequence[PastRecords] = (),
        recent: Sequence[LookbackRow] = (),
        gone: int = 0,
    ) -> None:
        self._aggregation = aggregation
        self._by_rows = by_rows
        self._size = size
        self._blocks = deque(blocks)
        self._gone = gone
        self._ahead: list[Any] | None = None
        """For each block that has not come to the front, the last one first: the accumulator of
        all from it on."""
        self._front: list[tuple[int, Any]] = []
        """For each record at the front, the last one first: its time, and the accumulator of all
        of them from it on."""
        self._new = list(recent)
        self._tail = self._sum_of(recent)
        self._count = sum(block.count for block in blocks) - gone + len(recent)
        self.dropped = 0
        """The number of records that have left since this object was made."""

    def results(self, rows: Sequence[LookbackRow]) -> Iterator[tuple[int, dict[str, Any]]]:
        """(number of consecutive records, their result) of new records, in the order of their
        times, none of which is before those that were there."""
        for at, peers in groups(rows, self._by_rows):
            self._add(peers)
            self._leave(at)
            yield len(peers), self._result()

    def _sum_of(self, rows: Sequence[LookbackRow]) -> Any:
        acc = self._aggregation.create()
        if not rows:
            return acc
        times, prepared = zip(*rows, strict=True)
        return self._aggregation.add_many(acc, prepared, times)

    def _add(self, rows: Sequence[LookbackRow]) -> None:
        times, prepared = zip(*rows, strict=True)
        self._tail = self._aggregation.add_many(self._tail, prepared, times)
        self._new += rows
        self._count += len(rows)

    def _leave(self, at: int) -> None:
        if self._by_rows:
            while self._count > self._size:
                self._drop()
            return
        start = at - self._size
        while True:
            if self._blocks and not self._front and self._blocks[0].last < start:
                self._skip()
            elif self._oldest() < start:
                self._drop()
            else:
                return

    def _skip(self) -> None:
        """Drop a whole block that has left."""
        left = self._blocks.popleft().count - self._gone
        self._gone = 0
        if self._ahead:
            self._ahead.pop()
        self.dropped += left
        self._count -= left

    def _oldest(self) -> int:
        if self._gone and not self._front:
            self._bring()
        if self._front:
            return self._front[-1][0]
        return self._blocks[0].first if self._blocks else self._new[0][0]

    def _drop(self) -> None:
        if not self._front:
            self._bring()
        self._front.pop()
        self.dropped += 1
        self._count -= 1

    def _bring(self) -> None:
        """Bring the next records to the front."""
        rows: Sequence[LookbackRow]
        if self._blocks:
            rows = self._blocks.popleft().rows()[self._gone :]
            self._gone = 0
            if self._ahead:
                self._ahead.pop()
        else:
            rows, self._new = self._new, []
            self._tail = self._aggregation.create()
        invariant(bool(rows), "a look-back has no record that could leave it")
        aggregation, behind = self._aggregation, None
        for at, prepared in reversed(rows):
            acc = aggregation.add_many(aggregation.create(), [prepared], [at])
            behind = acc if behind is None else aggregation.merge(acc, behind)
            self._front.append((at, behind))

    def _result(self) -> dict[str, Any]:
        if self._gone and not self._front:
            self._bring()
        if self._ahead is None:
            self._ahead = self._sums_from()
        aggregation = self._aggregation
        # merged into a new one, which shares nothing with the accumulators that are kept
        acc = aggregation.create()
        if self._front:
            acc = aggregation.merge(acc, self._front[-1][1])
        if self._blocks:
            acc = aggregation.merge(acc, self._ahead[-1])
        if self._new:
            acc = aggregation.merge(acc, self._tail)
        return aggregation.result(acc)

    def _sums_from(self) -> list[Any]:
        sums: list[Any] = []
        for block in reversed(self._blocks):
            acc = block.acc()
            sums.append(self._aggregation.merge(acc, sums[-1]) if sums else acc)
        return sums


def growing_results(
    aggregation: NamedAggregation,
    begin: Callable[[], Any],
    rows: Sequence[LookbackRow],
    by_rows: bool,
    keep: Callable[[Any], Kept],
) -> tuple[Kept | None, list[tuple[int, Found]]]:
    """The same where no record ever leaves: the accumulator of all records, from ``begin``, with
    new records, and their results. ``keep`` makes its stored form, and raises RecordError where
    there is none. None: nothing was added."""
    counts, others = [], []
    try:
        for _, peers in groups(rows, by_rows):
            times, prepared = zip(*peers, strict=True)
            counts.append(len(peers))
            others.append(aggregation.add_many(aggregation.create(), prepared, times))
        acc, results = aggregation.running(begin(), others)
        kept = keep(acc)
    except BaseException as ex:
        if not concerns_records(ex):
            raise
        return _one_after_the_other(aggregation, begin(), rows, by_rows, keep)
    return kept, list(zip(counts, results, strict=True))


def _one_after_the_other(
    aggregation: NamedAggregation,
    acc: Any,
    rows: Sequence[LookbackRow],
    by_rows: bool,
    keep: Callable[[Any], Kept],
) -> tuple[Kept | None, list[tuple[int, Found]]]:
    """The same where some records cannot be added to the others, and are left out."""
    kept: Kept | None = None
    found: list[tuple[int, Found]] = []
    for _, peers in groups(rows, by_rows):
        times, prepared = zip(*peers, strict=True)
        before = aggregation.merge(aggregation.create(), acc)
        try:
            acc = aggregation.add_many(acc, prepared, times)
            more = keep(acc)
            result: Found = aggregation.result(aggregation.merge(aggregation.create(), acc))
            kept = more
        except BaseException as ex:
            if not concerns_records(ex):
                raise
            acc, result = before, ex
        found.append((len(peers), result))
    return kept, found


def single_results(
    aggregation: NamedAggregation,
    by_rows: bool,
    size: int,
    past: Sequence[LookbackRow],
    rows: Sequence[LookbackRow],
) -> tuple[list[tuple[int, Found]], int]:
    """The results of new records, each look-back aggregated by itself; and how many of all have
    left. For look-backs of which some parts have no accumulator in a :class:`Lookback`: sums beyond
    all floats, and errors of the user's aggregates."""
    whole, start, end = [*past, *rows], 0, len(past)
    found: list[tuple[int, Found]] = []
    for at, peers in groups(rows, by_rows):
        end += len(peers)
        while end - start > size if by_rows else whole[start][0] < at - size:
            start += 1
        times, prepared = zip(*whole[start:end], strict=True)
        try:
            acc = aggregation.add_many(aggregation.create(), prepared, times)
            result: Found = aggregation.result(acc)
        except BaseException as ex:
            if not concerns_records(ex):
                raise
            result = ex
        found.append((len(peers), result))
    return found, start


def concerns_records(ex: BaseException) -> bool:
    """Whether aggregates have failed for some records, and not the shard as a whole."""
    return isinstance(ex, RecordError) or (
        is_failure(ex) and not isinstance(ex, MillwheelError | OSError)
    )


def groups(
    rows: Sequence[LookbackRow], by_rows: bool
) -> Iterator[tuple[int, Sequence[LookbackRow]]]:
    """Records that share a result, with their time: each alone, or all of one time."""
    if by_rows:
        return ((row[0], (row,)) for row in rows)
    return ((at, list(some)) for at, some in groupby(rows, _time_of))
