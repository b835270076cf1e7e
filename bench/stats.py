"""Medians, spreads and quantiles of a few runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Some runs of one thing: how many, their median, and the least and greatest."""

    runs: int
    median: float
    least: float
    greatest: float

    @property
    def relative(self) -> float:
        """Half the distance between least and greatest, as a share of the median; 0 for a median of
        0."""
        return (self.greatest - self.least) / 2 / self.median if self.median else 0.0


def spread(values: Sequence[float]) -> Spread:
    """Raises ValueError when there are none."""
    if not values:
        raise ValueError("no runs: nothing to take a median of")
    return Spread(len(values), statistics.median(values), min(values), max(values))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` (0 to 1) of the values, given in order, do not
    exceed."""
    if not ordered:
        raise ValueError("no values: there is no quantile")
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]
