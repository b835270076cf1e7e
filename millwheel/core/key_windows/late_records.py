"""How late records change steps that a key has already emitted (see core/key_windows/machine.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from millwheel.core.aggregates.aggregation import Aggregation

Bucket = tuple[int, Any]
"""(grid point at which its records enter, their accumulator)."""


class Queue:
    """A queue of accumulators with its total always available: two stacks, nothing subtracted."""

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
        return self._aggregation.result(self._aggregation.merge(self._copy(self._front[-1]), self._back_total))

    def _copy(self, acc: Any) -> Any:
        return self._aggregation.merge(self._aggregation.create(), acc)


def steps_of(
    buckets: Sequence[Bucket], size: int, points: Iterable[int], base: Any, aggregation: Aggregation
) -> list[tuple[int, Any]]:
    """The steps (point, result) of a key at the given points, in order; ``base`` is the result before them."""
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
