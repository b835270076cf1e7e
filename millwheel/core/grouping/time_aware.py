"""TAG, time-aware grouping: all instances get the same total completion time rather than the same
number of records.

The formulas are those of the paper. m_i records to instance i, each completed in t_i on average:

    (1) m_i t_i = m_j t_j for all i, j
    (2) :func:`millwheel.core.grouping.tables.imbalance`
    (3) m_i = m / (t_i sum 1/t_j)                (4) p_i = (1/t_i) / sum 1/t_j
    (5) m_i t_i = m / sum 1/t_j                  (6) O(1) imbalance for two candidates,
                                                     keys of up to 1/(5n)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from millwheel.core.grouping.base import Grouping
from millwheel.core.grouping.tables import EpochTable, Measured, draw, first_table
from millwheel.core.model.keys import Key

_NEWEST = 0.5
"""The share of the last window's time in a smoothed one."""
_LEAST_US = 1e-3
"""The least completion time, above zero: formula 4 divides by it."""
_MOST = 16.0
"""The most that an instance counts as slower than the fastest, so that each still gets records by
which it is measured."""


def probabilities(times_us: Sequence[float]) -> tuple[float, ...]:
    """Formula 4: the probability with which a segment goes to each instance."""
    total = sum(1 / each for each in times_us)
    return tuple(1 / each / total for each in times_us)


def shares(records: float, times_us: Sequence[float]) -> tuple[float, ...]:
    """Formula 3: how many of the records each instance gets when all are busy for the same time."""
    return tuple(records * each for each in probabilities(times_us))


def segments(count: int, records: int, instances: int) -> int:
    """How many segments a hot key has: one per 1/(5n) of the records, so about 5n in all."""
    return max(1, round(count * 5 * instances / records))


def smoothed(before: Sequence[float] | None, measured: Sequence[float | None]) -> tuple[float, ...]:
    """The completion times for the next epoch: half as measured, half as before, capped.
    An instance that completed nothing keeps its time; without an earlier one it takes the mean of
    the others."""
    times = [each for each in measured if each is not None]
    if before is None:
        before = [sum(times) / len(times) if times else 1.0] * len(measured)
        newest = 1.0
    else:
        newest = _NEWEST
    pairs = zip(before, measured, strict=True)
    mixed = [
        max(old if new is None else newest * new + (1 - newest) * old, _LEAST_US)
        for old, new in pairs
    ]
    fastest = min(mixed)
    return tuple(min(each, _MOST * fastest) for each in mixed)


class TimeAware(Grouping):
    """TAG: a hot key has the instances that its segments drew, another key two; a record goes to
    the candidate with the least total completion time.

    It uses ``alone_us`` where that was measured. The wait behind own records is in m_i already; if
    it counted in t_i, too, the fullest instance would look slow, and the loads would swing from
    window to window (docs/skew.md).
    """

    name = "tag"
    goes_by_times = True
    counts_keys = True

    def next_table(self, measured: Measured) -> EpochTable:
        epoch = self.table.epoch + 1
        unmeasured = self.table.prices == first_table(self.table.instances).prices
        times_us = smoothed(
            None if unmeasured else self.table.prices,
            measured.alone_us or measured.completion_us,
        )
        ends = list(accumulate(probabilities(times_us)))
        routes = {hot.key: self._drawn(epoch, hot.key, hot.count, ends) for hot in self._hot()}
        return EpochTable(epoch, self._last + 1, times_us, routes)

    def _drawn(self, epoch: int, key: Key, count: int, ends: Sequence[float]) -> tuple[int, ...]:
        """The instances that a hot key's segments draw, with these probabilities. One draw shifts
        all of them evenly (systematic sampling), so that no fast instance is left out by chance.
        The draw is a hash of its subject, so that a table can be made again."""
        last = len(ends) - 1
        number = segments(count, self._frequent.offered, self.table.instances)
        shift = draw(epoch, key)
        instances = {
            min(bisect_right(ends, (each + shift) / number), last) for each in range(number)
        }
        return tuple(sorted(instances))

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return self.table.routes.get(key) or self._two(key)
