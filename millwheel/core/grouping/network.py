"""NAG: groups by where instances run, and lowers the weight of a class of distances when its instances are slow."""

from __future__ import annotations

from millwheel.core.grouping.base import Grouping
from millwheel.core.grouping.tables import EpochTable, Measured, Network
from millwheel.core.model.keys import Key

_SLOW, _FAST = 1.25, 1.0
"""In mean completion times: a class slower than the first costs more from then on, one faster than the second less."""
_STEP = 1.25
"""The price of a class moves so slowly that it does not swing."""
_MOST = 4.0
"""A class keeps a quarter of an equal load, so that it is still measured."""


class NetworkAware(Grouping):
    """NAG: any instance may get any record; a near one is preferred while it is not slower than the others."""

    name = "nag"
    goes_by_times = True

    def next_table(self, measured: Measured) -> EpochTable:
        self.network = measured.network or self.network
        known = [each for each in measured.completion_us if each is not None]
        mean = sum(known) / len(known) if known else 0.0
        if not mean:  # no clock has moved: nothing is slow
            return super().next_table(measured)
        factors = {distance: self._factor(distance, measured, mean) for distance in set(self.network)}
        pairs = zip(self.table.prices, self.network, strict=True)
        scaled = [price * factors[distance] for price, distance in pairs]
        cheapest = min(scaled)
        prices = tuple(min(price / cheapest, _MOST) for price in scaled)
        return EpochTable(self.table.epoch + 1, self._last + 1, prices)

    def _factor(self, distance: Network, measured: Measured, mean: float) -> float:
        """The factor by which the price of a class changes. Between slow and fast it is 1, so that the price
        settles."""
        pairs = zip(measured.completion_us, self.network, strict=True)
        times_us = [each for each, where in pairs if where == distance and each is not None]
        ratio = sum(times_us) / len(times_us) / mean if times_us else 1.0
        return _STEP if ratio > _SLOW else 1 / _STEP if ratio < _FAST else 1.0

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return self._all
