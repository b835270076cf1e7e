"""approx_count_distinct, quantile, quantiles: small accumulators with a stated error.

Distinct counts are HyperLogLog sketches of Apache DataSketches (the accumulator is the serialised sketch). Quantiles
are DDSketch's: counts per logarithmic bin, within one percent of the true value, mergeable and subtractable
exactly, and independent of the order of the records, which the sketches that sample are not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import datasketches
from ddsketch.mapping import LogarithmicMapping

from millwheel.core.aggregates.base import AggregateFunction, Aggregator, wrong
from millwheel.core.aggregates.numeric import check_number

_LG_K = 12  # 2**12 registers: an error of 1.6 %, 4 kB for a key
_ACCURACY = 0.01  # relative error of quantiles
_LARGEST = (2 - 2.0**-52) * 2.0**1023  # Fixed: no float is larger


class ApproxCountDistinct(Aggregator[bytes]):
    """About how many different values; relative standard error 1.04 / sqrt(2**lg_k), 1.6 % by default."""

    ordered = False

    def __init__(self, lg_k: int) -> None:
        self.lg_k = lg_k

    def check(self, value: Any, name: str) -> Any:
        kind = type(value)
        if kind is str or kind is int or (kind is float and not math.isnan(value)):
            return value
        if kind is bytes:
            return value.hex()
        raise wrong("approx_count_distinct", name, value, "text, a number or bytes")

    def create(self) -> bytes:
        return b""

    def add(self, acc: bytes, value: Any, timestamp: int) -> bytes:
        return self.add_many(acc, (value,), (timestamp,))

    def add_many(self, acc: bytes, values: Sequence[Any], timestamps: Sequence[int]) -> bytes:
        sketch = datasketches.hll_sketch(self.lg_k)
        for value in values:
            sketch.update(value if type(value) is not int or -(2**63) <= value < 2**63 else str(value))
        return self._union(acc, sketch)

    def merge(self, acc: bytes, other: bytes) -> bytes:
        if not acc or not other:
            return acc or other
        return self._union(acc, datasketches.hll_sketch.deserialize(other))

    def result(self, acc: bytes) -> int:
        if not acc:
            return 0
        union, sketch = datasketches.hll_union(self.lg_k), datasketches.hll_sketch.deserialize(acc)
        union.update(sketch)
        # Once more: the estimate of a sketch that only took values, and was united with no other, depends on the order
        # in which they came.
        union.update(sketch)
        estimate: float = union.get_estimate()
        return round(estimate)

    def united(self, acc: bytes, kind: datasketches.tgt_hll_type = datasketches.tgt_hll_type.HLL_4) -> bytes:
        """The same accumulator as a union stores it."""
        if not acc:
            return acc
        union = datasketches.hll_union(self.lg_k)
        union.update(datasketches.hll_sketch.deserialize(acc))
        return bytes(union.get_result(kind).serialize_compact())

    def _union(self, acc: bytes, sketch: datasketches.hll_sketch) -> bytes:
        union = datasketches.hll_union(self.lg_k)
        if acc:
            union.update(datasketches.hll_sketch.deserialize(acc))
        union.update(sketch)
        return bytes(union.get_result().serialize_compact())


class Bins(LogarithmicMapping):
    """The bins of DDSketch. The key of a value is the logarithm to the base of 2 times ``ladder``, rounded up."""

    @property
    def ladder(self) -> float:
        """How many bins there are until a value has doubled."""
        return float(self._multiplier)

    def value(self, key: int) -> float:
        """As DDSketch has it; of the last bin, whose middle is no float any more, the largest one."""
        try:
            found: float = super().value(key)
        except OverflowError:
            return _LARGEST
        return min(found, _LARGEST)


class Quantiles(Aggregator[list[Any]]):
    """Quantiles within a relative ``accuracy``: [zeros, {bin: count of positives}, {bin: count of negatives}]."""

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

    def add_many(self, acc: list[Any], values: Sequence[Any], timestamps: Sequence[int]) -> list[Any]:
        least, key, found = self.mapping.min_possible, self.mapping.key, (acc[1], acc[2])
        for value, count in Counter(values).items():
            if -least <= value <= least:
                acc[0] += count
                continue
            bins = found[value < 0]
            bin_key = key(abs(value))
            bins[bin_key] = bins.get(bin_key, 0) + count
        return acc

    def subtract(self, acc: list[Any], value: Any, timestamp: int) -> list[Any]:
        return self._change(acc, value, -1)

    def merge(self, acc: list[Any], other: list[Any]) -> list[Any]:
        acc[0] += other[0]
        for mine, theirs in zip(acc[1:], other[1:], strict=True):
            for bin_key, count in theirs.items():
                mine[bin_key] = mine.get(bin_key, 0) + count
        return acc

    def result(self, acc: list[Any]) -> Any:
        found = [self._quantile(acc, share) for share in self.shares]
        return found[0] if self.single else found

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
        ladder = [(-self.mapping.value(bin_key), negative[bin_key]) for bin_key in sorted(negative, reverse=True)]
        ladder.append((0.0, zeros))
        ladder += [(self.mapping.value(bin_key), positive[bin_key]) for bin_key in sorted(positive)]
        for value, count in ladder:
            rank -= count
            if rank < 0:
                return float(value)
        return None


def _accuracy(options: Mapping[str, Any], function: str) -> float:
    accuracy = options.get("accuracy", _ACCURACY)
    if type(accuracy) is not float or not 0.0001 <= accuracy <= 0.5:
        raise ValueError(f"{function}: `accuracy` must be a share from 0.0001 to 0.5, such as 0.01, not {accuracy!r}")
    return accuracy


def _share(value: Any, function: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError(f"{function}: a quantile lies between 0 and 1, such as 0.95, not {value!r}")
    return float(value)


def _approx(options: Mapping[str, Any]) -> Aggregator[Any]:
    lg_k = options.get("lg_k", _LG_K)
    if type(lg_k) is not int or not 4 <= lg_k <= 21:
        raise ValueError(f"approx_count_distinct: `lg_k` must be a whole number from 4 to 21, not {lg_k!r}")
    return ApproxCountDistinct(lg_k)


def _quantile(options: Mapping[str, Any]) -> Aggregator[Any]:
    if "q" not in options:
        raise ValueError("quantile needs `q`; write for example {quantile: latency_ms, q: 0.95}")
    return Quantiles("quantile", [_share(options["q"], "quantile")], _accuracy(options, "quantile"))


def _quantiles(options: Mapping[str, Any]) -> Aggregator[Any]:
    shares = options.get("q")
    if not isinstance(shares, (list, tuple)) or not shares:
        raise ValueError("quantiles needs `q`, a list; write for example {quantiles: latency_ms, q: [0.5, 0.99]}")
    return Quantiles("quantiles", [_share(q, "quantiles") for q in shares], _accuracy(options, "quantiles"))


FUNCTIONS = {
    "approx_count_distinct": AggregateFunction(_approx, ("lg_k",)),
    "quantile": AggregateFunction(_quantile, ("q", "accuracy")),
    "quantiles": AggregateFunction(_quantiles, ("q", "accuracy")),
}
