"""quantile and quantiles: DDSketch's counts per logarithmic bin, within one percent of the true
value.

They can be merged and subtracted exactly, and do not depend on the order of the records, unlike
sketches that sample.

In columns each group has a list of bins with the number of values in each. A bin and its count
are one number, ``code * 2**38 + count``. Codes are in the order of the values: 0 for zero, 2**23
more than the key of DDSketch for positive values, and the same with a minus for negative ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from ddsketch.mapping import LogarithmicMapping

from millwheel.core.aggregates.base import AggregateFunction, Aggregator
from millwheel.core.aggregates.columns import Argument, ColumnAggregate, Inexact
from millwheel.core.aggregates.families.group_lists import gathered, spread
from millwheel.core.aggregates.families.numeric import check_number
from millwheel.core.lazy_polars import pl

_ACCURACY = 0.01  # relative error of quantiles
_LARGEST = (2 - 2.0**-52) * 2.0**1023  # Fixed: no float is larger
_Int64s = npt.NDArray[np.int64]
_COUNT_BITS = 38  # Fixed: of a count; stored states have it
_COUNT = 1 << _COUNT_BITS  # Fixed: above all counts
_MIDDLE = 1 << 23  # Fixed: above all keys of bins at the finest accuracy; stored states have it
_SPAN_BITS = 25  # Fixed: of the distance between two codes
_LEAST = -1 << (_SPAN_BITS - 1)  # Fixed: below all codes
_NEAR = 1e-6
"""The distance from the edge of a bin within which the logarithms of two libraries may disagree."""


class Bins(LogarithmicMapping):
    """The bins of DDSketch. The key of a value is the logarithm to the base of 2 times ``ladder``,
    rounded up."""

    @property
    def ladder(self) -> float:
        """The number of bins between a value and its double."""
        return float(self._multiplier)

    def value(self, key: int) -> float:
        """The value of a bin, as in DDSketch; of the last bin, whose middle is not a float any
        more, the largest float."""
        try:
            middle: float = super().value(key)
        except OverflowError:
            return _LARGEST
        return min(middle, _LARGEST)


class Quantiles(Aggregator[list[Any]]):
    """Quantiles within a relative ``accuracy``: [zeros, {bin: count of positives}, {bin: count of
    negatives}]."""

    subtracts = True
    ordered = False

    def __init__(self, function: str, shares: Sequence[float], accuracy: float) -> None:
        self._function = function
        self.single = function == "quantile"
        self.shares = tuple(shares)
        self.mapping = Bins(accuracy)

    def check(self, value: Any, name: str) -> Any:
        return check_number(self._function, value, name)

    def create(self) -> list[Any]:
        return [0, {}, {}]

    def add(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        return self._change(acc, value, 1)

    def add_many(
        self, acc: list[Any], values: Sequence[Any], timestamps: Sequence[int]
    ) -> list[Any]:
        least, key, bins_by_sign = self.mapping.min_possible, self.mapping.key, (acc[1], acc[2])
        for value, count in Counter(values).items():
            if -least <= value <= least:
                acc[0] += count
                continue
            bins = bins_by_sign[value < 0]
            bin_key = key(abs(value))
            bins[bin_key] = bins.get(bin_key, 0) + count
        return acc

    def subtract(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        return self._change(acc, value, -1)

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        acc[0] += other[0]
        for own, theirs in zip(acc[1:], other[1:], strict=True):
            for bin_key, count in theirs.items():
                own[bin_key] = own.get(bin_key, 0) + count
        return acc

    def result(self, acc: list[Any]) -> Any:
        quantiles = [self._quantile(acc, share) for share in self.shares]
        return quantiles[0] if self.single else quantiles

    def _change(self, acc: list[Any], value: Any, by: int) -> list[Any]:
        size = abs(value)
        if size <= self.mapping.min_possible:
            acc[0] += by
            return acc
        bins = acc[1] if value > 0 else acc[2]
        bin_key = self.mapping.key(size)
        count = bins.get(bin_key, 0) + by
        if count:
            bins[bin_key] = count
        else:
            del bins[bin_key]
        return acc

    def _quantile(self, acc: list[Any], share: float) -> float | None:
        zeros, positive, negative = acc
        total = zeros + sum(positive.values()) + sum(negative.values())
        if total < 1:
            return None
        rank = math.floor(share * (total - 1))
        ladder = [
            (-self.mapping.value(bin_key), negative[bin_key])
            for bin_key in sorted(negative, reverse=True)
        ]
        ladder.append((0.0, zeros))
        ladder += [(self.mapping.value(bin_key), positive[bin_key]) for bin_key in sorted(positive)]
        for value, count in ladder:
            rank -= count
            if rank < 0:
                return float(value)
        return None


# --- in columns -----------------------------------------------------------------------------------


class Binned(ColumnAggregate):
    """The state of quantile or quantiles."""

    grows = True

    def __init__(self, column: str, argument: Argument, aggregator: Quantiles) -> None:
        super().__init__(column, argument)
        self._aggregator = aggregator
        self.dtypes = {column: pl.List(pl.Int64)}

    def prepared(self) -> list[pl.Expr]:
        codes = self._argument.or_null().map_batches(
            self._codes, return_dtype=pl.Int64, is_elementwise=True
        )
        return [codes.alias(self._column)]

    def grouped(self) -> list[pl.Expr]:
        return [self._of_groups(_counted)]

    def merged(self) -> list[pl.Expr]:
        return [self._of_groups(_added)]

    def _of_groups(self, function: Callable[[pl.Series], pl.Series]) -> pl.Expr:
        """An expression that calls ``function`` once for all groups: expressions take some µs for
        each."""
        lists = pl.col(self._column).implode()
        return lists.map_batches(
            function, return_dtype=pl.List(pl.Int64), is_elementwise=True
        ).alias(self._column)

    def result(self, groups: pl.DataFrame) -> pl.Series:
        if not self._aggregator.single:
            raise Inexact  # columns of results hold no lists
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
        values: list[float | None] = [None] * len(lengths)
        for index in np.flatnonzero(some).tolist():
            values[index] = self._value(int(codes[at[index]]))
        return pl.Series(self._column, values, pl.Float64)

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
        counts = {0: zeros} if zeros else {}
        counts |= {_MIDDLE + int(key): count for key, count in positive.items()}
        counts |= {-_MIDDLE - int(key): count for key, count in negative.items()}
        if not all(0 < count < _COUNT for count in counts.values()):
            raise Inexact
        return [[code * _COUNT + counts[code] for code in sorted(counts)]]

    def _codes(self, values: pl.Series) -> pl.Series:
        """The code of each value; null where there is none."""
        numbers = values.cast(pl.Float64).fill_null(0.0).to_numpy()
        mapping = self._aggregator.mapping
        sizes = np.abs(numbers)
        counted = sizes > mapping.min_possible
        rungs = np.log(np.where(counted, sizes, 1.0)) / math.log(2) * mapping.ladder
        keys = np.ceil(rungs).astype(np.int64)
        for index in np.flatnonzero(counted & (np.abs(rungs - np.round(rungs)) < _NEAR)).tolist():
            keys[index] = mapping.key(float(sizes[index]))
        codes = np.where(counted, np.where(numbers < 0, -1, 1) * (keys + _MIDDLE), 0)
        series: pl.Series = pl.Series(values.name, codes)
        return (
            series
            if not values.null_count()
            else series.zip_with(values.is_not_null(), pl.Series([None], dtype=pl.Int64))
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
    entries = parts.to_numpy()
    if not len(entries):
        return _bins(numbers, numbers, lists)
    codes = entries >> _COUNT_BITS
    pairs = _pairs(numbers, codes)
    order = np.argsort(pairs)
    pairs, counts = pairs[order], (entries - (codes << _COUNT_BITS))[order]
    first = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]]))
    return _bins(pairs[first], np.add.reduceat(counts, first), lists)


def _pairs(numbers: _Int64s, codes: _Int64s) -> _Int64s:
    """One number for a group and a code, in their order."""
    return (numbers << _SPAN_BITS) + (codes - _LEAST)


def _bins(pairs: _Int64s, counts: _Int64s, lists: pl.Series) -> pl.Series:
    numbers = pairs >> _SPAN_BITS
    codes = pairs - (numbers << _SPAN_BITS) + _LEAST
    return gathered(numbers, pl.Series(codes * _COUNT + counts), len(lists))


# --- options --------------------------------------------------------------------------------------


def _accuracy(options: Mapping[str, Any], function: str) -> float:
    accuracy = options.get("accuracy", _ACCURACY)
    if type(accuracy) is not float or not 0.0001 <= accuracy <= 0.5:
        raise ValueError(
            f"{function}: `accuracy` must be a share from 0.0001 to 0.5, such as 0.01, not"
            f" {accuracy!r}"
        )
    return accuracy


def _share(value: Any, function: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError(
            f"{function}: a quantile lies between 0 and 1, such as 0.95, not {value!r}"
        )
    return float(value)


def _quantile(options: Mapping[str, Any]) -> Aggregator[Any]:
    if "q" not in options:
        raise ValueError("quantile needs `q`; write for example {quantile: latency_ms, q: 0.95}")
    return Quantiles("quantile", [_share(options["q"], "quantile")], _accuracy(options, "quantile"))


def _quantiles(options: Mapping[str, Any]) -> Aggregator[Any]:
    shares = options.get("q")
    if not isinstance(shares, (list, tuple)) or not shares:
        raise ValueError(
            "quantiles needs `q`, a list; write for example {quantiles: latency_ms, q: [0.5, 0.99]}"
        )
    return Quantiles(
        "quantiles", [_share(q, "quantiles") for q in shares], _accuracy(options, "quantiles")
    )


FUNCTIONS = {
    "quantile": AggregateFunction(
        _quantile,
        ("q", "accuracy"),
        Binned,
        gives="approximate; `q: 0.99`, `accuracy: 0.01` (relative)",
        keeps="some hundred numbers at most",
        example={"q": 0.6, "accuracy": 0.25},
    ),
    "quantiles": AggregateFunction(
        _quantiles,
        ("q", "accuracy"),
        Binned,
        gives="a list; `q: [0.5, 0.99]`",
        keeps="as one `quantile`",
        example={"q": [0.5, 0.9], "accuracy": 0.25},
    ),
}
