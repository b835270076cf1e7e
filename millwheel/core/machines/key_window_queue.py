"""The records of one key that are in a sliding window: a queue with its total always available.

Records that enter at the same point share a *bucket*. The queue is two stacks: each bucket of the
front has the aggregate of itself and all later ones of the front, the back has one running
aggregate. When the front is used up, the back becomes the front. Buckets are state entries of their
own under the point at which they enter, ``[accumulator, next point, aggregate of the front from
here]``, linked in order, so a bundle rewrites only what it touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.windows.contract import KeyState
from millwheel.errors import InvariantError


class Steps(msgspec.Struct, array_like=True):
    """The computed part of a key's step function.

    ``last`` is the result at the watermark. ``pending`` are the points ahead at which buckets
    enter, ``extra`` others at which the result may change. The queue of entered buckets runs from
    ``first`` over ``split``, the last of the front (None: the front is empty), to ``tail``;
    ``back`` aggregates the buckets after ``split``. With an allowed lateness ``kept`` is the oldest
    bucket that still exists, ``emitted`` are the steps [point, result, panes, was on time] that may
    still be corrected, and ``base`` is the result before them.
    """

    last: Any
    base: Any
    back: Any
    pending: list[int] = []
    extra: list[int] = []
    first: int | None = None
    split: int | None = None
    tail: int | None = None
    kept: int | None = None
    emitted: list[list[Any]] = []
    timer_at_us: int | None = None


class BucketQueue:
    """The queue of all keys of a machine. With ``keeps``, buckets that have left stay until they
    are dropped."""

    def __init__(self, aggregation: Aggregation, size: int, keeps: bool) -> None:
        self._aggregation = aggregation
        self._size = size
        self._keeps = keeps

    def link(self, own: Steps, point: int, bucket: list[Any], state: KeyState) -> None:
        """Put a bucket into the chain of entered buckets, at its position."""
        before, after = None, own.kept
        while after is not None and after < point:
            before, after = after, state.get(after)[1]
        bucket[1] = after
        if before is None:
            own.kept = point
        else:
            previous = state.get(before)
            previous[1] = point
            state[before] = previous
        if after is None:
            own.tail = point

    def enter(self, own: Steps, point: int, state: KeyState) -> None:
        """The bucket's records are in the window from here on."""
        bucket = state.get(point)
        # The chain is in order: the bucket that leaves is at its beginning.
        if own.tail is not None and own.tail >= point:
            raise InvariantError(f"a bucket enters at {point}, behind the one at {own.tail}")
        self._link_last(own, point, state)
        own.back = self._aggregation.merge(own.back, bucket[0])
        own.first = point if own.first is None else own.first

    def _link_last(self, own: Steps, point: int, state: KeyState) -> None:
        if own.tail is None:
            own.kept = point
        else:
            previous = state.get(own.tail)
            previous[1] = point
            state[own.tail] = previous
        own.tail = point

    def leave(self, own: Steps, state: KeyState) -> None:
        """The oldest bucket's records are in no window from here on."""
        if own.split is None:
            self._flip(own, state)
        first: int = own.first  # type: ignore[assignment]
        following = state.get(first)[1]
        if first == own.split:
            own.split = None
        own.first = following
        if not self._keeps:
            self.drop(own, state)

    def drop(self, own: Steps, state: KeyState) -> None:
        """Forget the oldest bucket."""
        # In an empty queue the result would be that of removed records.
        if own.kept is None:
            raise InvariantError("a bucket leaves a sliding window that has none")
        oldest = own.kept
        own.kept = state.get(oldest)[1]
        if own.kept is None:
            own.tail = None
        del state[oldest]

    def _flip(self, own: Steps, state: KeyState) -> None:
        """The back becomes the front: each bucket gets the aggregate of itself and all after it."""
        total = self._aggregation.create()
        for point in reversed(self.chain(own.first, state)):
            bucket = state.get(point)
            # A copy, since merging changes its first argument: the bucket would hold all later
            # ones, too, when the queue is built anew
            # (test_the_result_is_that_of_all_that_entered_and_did_not_leave).
            total = self._aggregation.merge(self._copy(bucket[0]), total)
            bucket[2] = total
            state[point] = bucket
        own.split = own.tail
        own.back = self._aggregation.create()

    def chain(self, point: int | None, state: KeyState) -> list[int]:
        """The buckets from ``point`` on, in order."""
        buckets = []
        while point is not None:
            buckets.append(point)
            point = state.get(point)[1]
        return buckets

    def _copy(self, acc: Any) -> Any:
        return self._aggregation.merge(self._aggregation.create(), acc)

    def result(self, own: Steps, state: KeyState) -> Any:
        """The result over the whole window."""
        if own.split is None:
            return self._aggregation.result(own.back)
        front = state.get(own.first)[2]
        if own.split == own.tail:
            return self._aggregation.result(front)
        return self._aggregation.result(self._aggregation.merge(self._copy(front), own.back))

    def rebuild(self, own: Steps, watermark: int, state: KeyState) -> None:
        """Build the stacks anew from the buckets: some of them have changed."""
        inside = [point for point in self.chain(own.kept, state) if point + self._size > watermark]
        own.first, own.split = (inside[0] if inside else None), None
        own.back = self._aggregation.create()
        for point in inside:
            own.back = self._aggregation.merge(own.back, state.get(point)[0])


Bucket = tuple[int, Any]
"""(grid point at which its records enter, their accumulator)."""


class Queue:
    """The same queue in memory: changes by late records are computed anew from its buckets."""

    def __init__(self, aggregation: Aggregation) -> None:
        self._aggregation = aggregation
        self._front: list[Any] = []
        self._back: list[Any] = []
        self._back_total = aggregation.create()

    def push(self, acc: Any) -> None:
        """Add the newest; ``acc`` is not changed."""
        self._back.append(acc)
        self._back_total = self._aggregation.merge(self._back_total, acc)

    def pop(self) -> None:
        """Drop the oldest."""
        if not self._front:
            total = self._aggregation.create()
            for acc in reversed(self._back):
                total = self._aggregation.merge(self._copy(acc), total)
                self._front.append(total)
            self._back = []
            self._back_total = self._aggregation.create()
        self._front.pop()

    def result(self) -> Any:
        """The result over the whole queue."""
        if not self._front:
            return self._aggregation.result(self._back_total)
        return self._aggregation.result(
            self._aggregation.merge(self._copy(self._front[-1]), self._back_total)
        )

    def _copy(self, acc: Any) -> Any:
        return self._aggregation.merge(self._aggregation.create(), acc)


def steps_of(
    buckets: Sequence[Bucket], size: int, points: Iterable[int], base: Any, aggregation: Aggregation
) -> list[tuple[int, Any]]:
    """The steps (point, result) of a key at the given points, in order; ``base`` is the result
    before them."""
    queue = Queue(aggregation)
    entered = left = 0
    steps, last = [], base
    for point in sorted(set(points)):
        while entered < len(buckets) and buckets[entered][0] <= point:
            queue.push(buckets[entered][1])
            entered += 1
        while left < entered and buckets[left][0] + size <= point:
            queue.pop()
            left += 1
        result = queue.result()
        if result != last:
            steps.append((point, result))
            last = result
    return steps
