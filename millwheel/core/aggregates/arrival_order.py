"""Aggregations whose results show the order of arrival, over windows that merge.

Two sessions of a key may grow alternately, record by record, and merge later. The merged window
must hold their records in the order of arrival, as if there had been one session from the start. So
the accumulator of such a window is a list of *runs*, ``[first, last, accumulator]``: records of the
key that came directly after each other, with their numbers. Windows merge by sorting their runs; a
window that is the only one of its key has one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.aggregates.aggregation import Aggregation, Prepared
from millwheel.core.aggregates.base import one_by_one

Run = list[Any]
"""[number of the first record, number of the last, accumulator of them all]."""
OLD = 0
"""The number of records whose order was not kept: they came before all others."""


class InOrder:
    """An aggregation with runs as accumulators."""

    ordered = True

    def __init__(self, inner: Aggregation) -> None:
        self._inner = inner
        self.subtracts = False
        self.linear = inner.linear
        self.prepare = inner.prepare

    def create(self) -> list[Run]:
        return []

    def of_old(self, acc: Any) -> list[Run]:
        """An accumulator of ``inner`` as runs."""
        return [[OLD, OLD, acc]]

    def add_numbered(
        self,
        acc: list[Run],
        numbers: Sequence[int],
        prepared: Sequence[Prepared],
        timestamps: Sequence[int],
    ) -> list[Run]:
        """Add records, whose numbers rise and are higher than all in ``acc``."""
        start = 0
        for end in range(1, len(numbers) + 1):
            if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
                run = self._run_at(acc, numbers[start])
                run[1] = numbers[end - 1]
                run[2] = self._inner.add_many(run[2], prepared[start:end], timestamps[start:end])
                start = end
        return acc

    def _run_at(self, acc: list[Run], number: int) -> Run:
        """The run that a record continues, or a new one."""
        if not acc or acc[-1][1] + 1 != number:
            acc.append([number, number, self._inner.create()])
        return acc[-1]

    def add_many(
        self, acc: list[Run], prepared: Sequence[Prepared], timestamps: Sequence[int]
    ) -> list[Run]:
        first = acc[-1][1] + 1 if acc else 1
        return self.add_numbered(acc, range(first, first + len(prepared)), prepared, timestamps)

    def merge(self, acc: list[Run], other: list[Run]) -> list[Run]:
        merged: list[Run] = []
        for first, last, piece in sorted([*acc, *other], key=lambda run: run[0]):
            if merged and merged[-1][1] + 1 == first:
                merged[-1] = [merged[-1][0], last, self._inner.merge(merged[-1][2], piece)]
            else:
                merged.append([first, last, self._inner.merge(self._inner.create(), piece)])
        return merged

    def running(self, acc: list[Run], others: Sequence[list[Run]]) -> tuple[list[Run], list[Any]]:
        return one_by_one(self, acc, others)

    def subtract(self, acc: list[Run], prepared: Prepared, timestamp: int) -> list[Run]:
        raise TypeError("windows over input with retractions keep their records")

    def result(self, acc: list[Run]) -> Any:
        if len(acc) == 1:
            return self._inner.result(acc[0][2])
        whole = self._inner.create()
        for _, _, piece in acc:
            whole = self._inner.merge(whole, piece)
        return self._inner.result(whole)
