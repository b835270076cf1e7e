"""NAG, network-aware grouping: classes of distance have weights and priorities, and weights follow
measurements.

The nearest class comes first, up to its weight: each instance of a class of weight w gets w records
for every one of an instance of weight 1, and at the beginning of an epoch it gets them before all
others. Weights begin with the table of latencies (:func:`weight_of`). A class that completes its
records more slowly than all do on average loses half of its weight with each window, and gains it
back, a twentieth with each, once it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from millwheel.core.grouping.base import Grouping
from millwheel.core.grouping.tables import LATENCY_US, EpochTable, Measured, Network, first_table
from millwheel.core.model.keys import Key

_SLOW, _CALM = 1.25, 1.1
"""In mean completion times of all: a class above the first loses weight, one below the second
gains. In between it keeps its weight, so that weights settle."""
_LOSS, _GAIN = 0.5, 1.05
"""The factors. Too many records at one instance delay all others, so weight is lost fast and
regained slowly: a class that gained as fast as it loses would be overloaded every other window."""
_LEAST = 0.25
"""The least weight of a class, with which it is still measured."""


def weight_of(network: Network) -> float:
    """The weight of a class by the table of latencies: 9.2, 3.9, 1.6 and 1. It grows with the
    logarithm, as weights in proportion (3,500, 18, 2 and 1) would give all records to one instance,
    however slow it is."""
    return 1 + log(LATENCY_US[Network.ELSEWHERE] / LATENCY_US[network])


class NetworkAware(Grouping):
    """NAG: any instance may get any record. A load is a count over a weight; ``prices`` are inverse
    weights."""

    name = "nag"
    goes_by_times = True
    measured_us: tuple[float | None, ...] = ()
    """The completion times that the table is based on."""

    def next_table(self, measured: Measured) -> EpochTable:
        self.network, self.measured_us = measured.network or self.network, measured.completion_us
        weights = {
            where: self._weight(where, measured.completion_us) for where in set(self.network)
        }
        prices = tuple(1 / weights[where] for where in self.network)
        return EpochTable(self.table.epoch + 1, self._last + 1, prices)

    def _weight(self, network: Network, times_us: Sequence[float | None]) -> float:
        """The next weight of a class, by the mean time of all its instances."""
        most = weight_of(network)
        if self.table.prices == first_table(self.table.instances).prices:  # no weights yet
            return most
        here = [at for at, where in enumerate(self.network) if where == network]
        before = len(here) / sum(self.table.prices[at] for at in here)
        return min(
            max(before * _step(_mean([times_us[at] for at in here]), _mean(times_us)), _LEAST), most
        )

    def _candidates(self, key: Key) -> tuple[int, ...]:
        """All instances, those of most weight first: they are the nearest ones unless they are
        slow."""
        return tuple(sorted(self._all, key=self.table.prices.__getitem__))


def _step(class_us: float | None, all_us: float | None) -> float:
    """The factor by which a weight changes; 1 without measurements."""
    if class_us is None or not all_us:
        return 1.0
    slow = class_us / all_us
    return _LOSS if slow > _SLOW else _GAIN if slow < _CALM else 1.0


def _mean(times_us: Sequence[float | None]) -> float | None:
    """The mean of the measured times; None without any."""
    measured = [each for each in times_us if each is not None]
    return sum(measured) / len(measured) if measured else None
