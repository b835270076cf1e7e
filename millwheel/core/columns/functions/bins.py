"""quantile and quantiles in columns: each group has a list of bins and how often a value fell into each.

A bin and its count are one number, ``code * 2**38 + count``. Codes are in the order of the values: 0 for zero, 2**23
more than the key of DDSketch for positive values, and the same with a minus for negative ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.sketches import Quantiles
from millwheel.core.columns.arguments import Argument
from millwheel.core.columns.fixed_sums import Unfit
from millwheel.core.columns.functions.ragged import gathered, spread
from millwheel.core.columns.lazy_polars import pl

_Int64s = npt.NDArray[np.int64]
_COUNT_BITS = 38  # Fixed: of a count; stored states have it
_COUNT = 1 << _COUNT_BITS  # Fixed: above all counts
_MIDDLE = 1 << 23  # Fixed: above all keys of bins at the finest accuracy; stored states have it
_SPAN_BITS = 25  # Fixed: of the distance between two codes
_LEAST = -1 << (_SPAN_BITS - 1)  # Fixed: below all codes
_NEAR = 1e-6
"""So near to the edge of a bin the logarithms of two libraries may disagree."""


class Binned:
    """The state of quantile or quantiles."""

    grows = True

    def __init__(self, column: str, argument: Argument, aggregator: Quantiles) -> None:
        self._column = column
        self._argument = argument
        self._aggregator = aggregator
        self.dtypes: dict[str, Any] = {column: pl.List(pl.Int64)}

    def staged(self) -> list[pl.Expr]:
        return []

    def prepared(self) -> list[pl.Expr]:
        codes = self._argument.or_null().map_batches(self._codes, return_dtype=pl.Int64, is_elementwise=True)
        return [codes.alias(self._column)]

    def grouped(self) -> list[pl.Expr]:
        return [self._of_groups(_counted)]

    def merged(self) -> list[pl.Expr]:
        return [self._of_groups(_added)]

    def _of_groups(self, function: Callable[[pl.Series], pl.Series]) -> pl.Expr:
        """Called once for all groups: expressions take some µs for each."""
        lists = pl.col(self._column).implode()
        return lists.map_batches(function, return_dtype=pl.List(pl.Int64), is_elementwise=True).alias(self._column)

    def result(self, groups: pl.DataFrame) -> pl.Series:
        if not self._aggregator.single:
            raise Unfit  # columns of results hold no lists
        lists = groups[self._column].list.sort()
        lengths = lists.list.len().to_numpy().astype(np.int64)
        parts = lists.explode().drop_nulls().to_numpy()
        codes = parts // _COUNT
        sums = np.concatenate([[0], np.cumsum(parts - codes * _COUNT)])
        ends = np.cumsum(lengths)
        before, after = sums[ends - lengths], sums[ends]
        ranks = np.floor(self._aggregator.shares[0] * (after - before - 1)).astype(np.int64)
        some = after > before
        at = np.searchsorted(sums[1:], np.where(some, before + ranks, 0), side="right")
        found: list[float | None] = [None] * len(lengths)
        for index in np.flatnonzero(some).tolist():
            found[index] = self._value(int(codes[at[index]]))
        return pl.Series(self._column, found, pl.Float64)

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        zeros, bins = 0, ({}, {})  # type: tuple[int, tuple[dict[int, int], dict[int, int]]]
        for part in row[self._column]:
            code, count = divmod(part, _COUNT)
            if code:
                bins[code < 0][abs(code) - _MIDDLE] = count
            else:
                zeros = count
        return [zeros, *bins]

    def from_acc(self, acc: Any) -> list[Any]:
        zeros, positive, negative = acc
        found = {0: zeros} if zeros else {}
        found |= {_MIDDLE + int(key): count for key, count in positive.items()}
        found |= {-_MIDDLE - int(key): count for key, count in negative.items()}
        if not all(0 < count < _COUNT for count in found.values()):
            raise Unfit
        return [[code * _COUNT + found[code] for code in sorted(found)]]

    def unfit(self) -> list[pl.Expr]:
        return self._argument.unfit()

    def _codes(self, values: pl.Series) -> pl.Series:
        """The code of each value; null where there is none."""
        given = values.cast(pl.Float64).fill_null(0.0).to_numpy()
        mapping = self._aggregator.mapping
        sizes = np.abs(given)
        counted = sizes > mapping.min_possible
        rungs = np.log(np.where(counted, sizes, 1.0)) / math.log(2) * mapping.ladder
        keys = np.ceil(rungs).astype(np.int64)
        for index in np.flatnonzero(counted & (np.abs(rungs - np.round(rungs)) < _NEAR)).tolist():
            keys[index] = mapping.key(float(sizes[index]))
        codes = np.where(counted, np.where(given < 0, -1, 1) * (keys + _MIDDLE), 0)
        made: pl.Series = pl.Series(values.name, codes)
        return (
            made if not values.null_count() else made.zip_with(values.is_not_null(), pl.Series([None], dtype=pl.Int64))
        )

    def _value(self, code: int) -> float:
        if not code:
            return 0.0
        value: float = self._aggregator.mapping.value(abs(code) - _MIDDLE)
        return -value if code < 0 else value


def _counted(lists: pl.Series) -> pl.Series:
    """The bins of groups, from the codes of their values."""
    numbers, codes = spread(lists)
    pairs, counts = np.unique(_pairs(numbers, codes.to_numpy()), return_counts=True)
    return _bins(pairs, counts, lists)


def _added(lists: pl.Series) -> pl.Series:
    """The bins of groups, from those of their parts."""
    numbers, parts = spread(lists)
    found = parts.to_numpy()
    if not len(found):
        return _bins(numbers, numbers, lists)
    codes = found >> _COUNT_BITS
    pairs = _pairs(numbers, codes)
    order = np.argsort(pairs)
    pairs, counts = pairs[order], (found - (codes << _COUNT_BITS))[order]
    first = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]]))
    return _bins(pairs[first], np.add.reduceat(counts, first), lists)


def _pairs(numbers: _Int64s, codes: _Int64s) -> _Int64s:
    """One number for a group and a code, in their order."""
    return (numbers << _SPAN_BITS) + (codes - _LEAST)


def _bins(pairs: _Int64s, counts: _Int64s, lists: pl.Series) -> pl.Series:
    numbers = pairs >> _SPAN_BITS
    codes = pairs - (numbers << _SPAN_BITS) + _LEAST
    return gathered(numbers, pl.Series(codes * _COUNT + counts), len(lists))
