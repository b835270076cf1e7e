"""approx_count_distinct: HyperLogLog sketches of Apache DataSketches. The accumulator is the
serialized sketch.

In columns each group has the coupons of its values, or the registers that these make. A value's
*coupon* is its form in DataSketches' HyperLogLog: 26 bits of an address, and above them the number
of zeros that a second hash begins with. A sketch of few values is a set of coupons, one of many has
for each address the highest number of zeros: its *registers*, which are coupons with shorter
addresses here. A list of registers begins with 0, which is not a coupon. The same values give the
same list, merged in any order.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import datasketches
import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.base import VALUES, AggregateFunction, Aggregator, wrong
from millwheel.core.aggregates.columns import Argument, ColumnAggregate
from millwheel.core.aggregates.families.group_lists import gathered, spread
from millwheel.core.lazy_polars import pl

_LG_K = 12  # 2**12 registers: an error of 1.6 %, 4 kB for a key
_Uint64s = npt.NDArray[np.uint64]
_Int64s = npt.NDArray[np.int64]
_ADDRESS_BITS = 26  # Fixed: of a coupon
_ZERO_BITS = 6  # Fixed: of a coupon
_LISTED = 7  # Fixed: a list of coupons has at most so many
_LEAST_SET = 8  # Fixed: sketches with fewer address bits have no set of coupons
_LIST, _SET, _REGISTERS = 0, 1, 2  # Fixed: the modes of a stored sketch
_SEED = 9001  # Fixed: of DataSketches
_HEAD, _SET_HEAD, _REGISTERS_HEAD = 8, 12, 40  # Fixed: bytes before coupons and registers
_FAMILY, _VERSION, _OF_BYTES, _COMPACT = 7, 1, 2 << 2, 8  # Fixed: parts of the head
_FAR = 32  # Fixed: registers from here on are summed up apart


class ApproxCountDistinct(Aggregator[bytes]):
    """The approximate number of different values; relative standard error 1.04 / sqrt(2**lg_k), 1.6
    % by default."""

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
            sketch.update(
                value if type(value) is not int or -(2**63) <= value < 2**63 else str(value)
            )
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
        # Once more: the estimate of a sketch that was never united with another one depends on the
        # order in which its values came.
        union.update(sketch)
        estimate: float = union.get_estimate()
        return round(estimate)

    def united(
        self, acc: bytes, kind: datasketches.tgt_hll_type = datasketches.tgt_hll_type.HLL_4
    ) -> bytes:
        """The accumulator in the form that a union stores."""
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


# --- in columns -----------------------------------------------------------------------------------


class Sketched(ColumnAggregate):
    """approx_count_distinct."""

    grows = True

    def __init__(self, column: str, argument: Argument, aggregator: ApproxCountDistinct) -> None:
        super().__init__(column, argument)
        self._aggregator = aggregator
        self._bits = aggregator.lg_k
        # As many as DataSketches keeps in a set that is three quarters full, and its last size.
        self._most = 3 << (self._bits - 5) if self._bits >= _LEAST_SET else _LISTED
        self._of_counts: dict[int, int] = {0: 0}
        self.dtypes = {column: pl.List(pl.UInt32)}

    def prepared(self) -> list[pl.Expr]:
        values = self._argument.or_null().map_batches(
            coupons, return_dtype=pl.UInt32, is_elementwise=True
        )
        return [values.alias(self._column)]

    def merged(self) -> list[pl.Expr]:
        # Made once for all groups: expressions take some µs for each.
        lists = pl.col(self._column).implode()
        merged = lists.map_batches(
            self._together, return_dtype=pl.List(pl.UInt32), is_elementwise=True
        )
        return [merged.alias(self._column)]

    def result(self, groups: pl.DataFrame) -> pl.Series:
        """The estimate of coupons depends on their number alone."""
        lists = groups[self._column]
        memo = self._of_counts
        estimates = [0] * len(lists)
        for index, (count, first) in enumerate(
            zip(lists.list.len(), lists.list.first(), strict=True)
        ):
            if first and count in memo:
                estimates[index] = memo[count]
            elif count:
                estimates[index] = self._aggregator.result(self._image(lists[index].to_numpy()))
                if first:
                    memo[count] = estimates[index]
        return pl.Series(self._column, estimates, pl.Int64)

    def to_acc(self, row: Mapping[str, Any]) -> Any:
        return self._aggregator.united(self._image(np.array(row[self._column], np.uint32)))

    def from_acc(self, acc: Any) -> list[Any]:
        if not acc:
            return [[]]
        stored = self._aggregator.united(acc, datasketches.tgt_hll_type.HLL_8)
        mode = stored[7] & 3
        if mode == _REGISTERS:
            zeros = np.frombuffer(stored, np.uint8, 1 << self._bits, _REGISTERS_HEAD)
            (slots,) = np.nonzero(zeros)
            return [
                [0, *np.sort((zeros[slots].astype(np.int64) << _ADDRESS_BITS) | slots).tolist()]
            ]
        start, count = (
            (_HEAD, stored[6])
            if mode == _LIST
            else (_SET_HEAD, int.from_bytes(stored[8:12], "little"))
        )
        return [np.sort(np.frombuffer(stored, np.uint32, count, start)).tolist()]

    def _together(self, lists: pl.Series) -> pl.Series:
        """One list for each group of coupons or lists."""
        numbers, codes = spread(lists)
        pairs = np.unique((numbers << 32) | codes.to_numpy().astype(np.int64))
        owners, group_codes = pairs >> 32, pairs & 0xFFFFFFFF
        counts = np.bincount(owners, minlength=len(lists))
        many = counts > self._most
        many[owners[group_codes == 0]] = True
        if many.any():
            owners, group_codes = self._registers(owners, group_codes, many)
        return gathered(owners, pl.Series(group_codes.astype(np.uint32)), len(lists))

    def _registers(
        self, owners: _Int64s, codes: _Int64s, many: npt.NDArray[np.bool_]
    ) -> tuple[_Int64s, _Int64s]:
        """The same with registers for groups of many values."""
        mask = many[owners]
        kept = mask & (codes != 0)
        slots, zeros = codes[kept] & ((1 << self._bits) - 1), codes[kept] >> _ADDRESS_BITS
        ordered = np.sort((((owners[kept] << self._bits) | slots) << _ZERO_BITS) | zeros)
        highest = ordered[np.append(np.diff(ordered >> _ZERO_BITS) != 0, True)[: len(ordered)]]
        slots = highest >> _ZERO_BITS
        words = ((highest & ((1 << _ZERO_BITS) - 1)) << _ADDRESS_BITS) | (
            slots & ((1 << self._bits) - 1)
        )
        marked = np.flatnonzero(many)
        all_owners = np.concatenate([owners[~mask], slots >> self._bits, marked])
        all_codes = np.concatenate([codes[~mask], words, np.zeros(len(marked), np.int64)])
        order = np.argsort((all_owners << 32) | all_codes, kind="stable")
        return all_owners[order], all_codes[order]

    def _image(self, codes: npt.NDArray[np.uint32]) -> bytes:
        """A sketch as DataSketches stores it."""
        if not len(codes):
            return b""
        if codes[0] == 0:
            return self._image_of_registers(codes[1:])
        count = len(codes)
        if count <= _LISTED:
            head = bytes([2, _VERSION, _FAMILY, self._bits, 3, _COMPACT, count, _OF_BYTES | _LIST])
            return head + codes.tobytes()
        # of the table: at most three quarters of it are taken
        size = max((4 * count + 2) // 3 - 1, 1).bit_length()
        head = bytes(
            [3, _VERSION, _FAMILY, self._bits, max(size, 5), _COMPACT, 0, _OF_BYTES | _SET]
        )
        return head + struct.pack("<i", count) + codes.tobytes()

    def _image_of_registers(self, codes: npt.NDArray[np.uint32]) -> bytes:
        registers = np.zeros(1 << self._bits, np.uint8)
        registers[codes & np.uint32((1 << self._bits) - 1)] = codes >> np.uint32(_ADDRESS_BITS)
        counts = np.bincount(registers, minlength=_FAR)
        shares = counts * 0.5 ** np.arange(len(counts))
        sums = float(shares[:_FAR].sum()), float(shares[_FAR:].sum())
        head = bytes([10, _VERSION, _FAMILY, self._bits, 0, 0, 0, _OF_BYTES | _REGISTERS])
        return head + struct.pack("<dddii", 0.0, *sums, int(counts[0]), 0) + registers.tobytes()


def coupons(values: pl.Series) -> pl.Series:
    """The coupon of each value; null for null, and for empty text, which DataSketches leaves
    out."""
    if values.dtype == pl.String:
        distinct = values.drop_nulls().unique()
        distinct = distinct.filter(distinct.str.len_bytes() > 0)
        codes = pl.Series(_of_texts(distinct.to_list()), dtype=pl.UInt32)
        result: pl.Series = values.replace_strict(
            distinct, codes, default=None, return_dtype=pl.UInt32
        )
        return result
    # Negative zero is zero.
    plain = (
        values.fill_null(0).to_numpy()
        if values.dtype == pl.Int64
        else values.fill_null(0.0).to_numpy() + 0.0
    )
    series = pl.Series(values.name, _of_words(np.ascontiguousarray(plain).view(np.uint64)))
    return (
        series
        if not values.null_count()
        else series.zip_with(values.is_not_null(), pl.Series([None], dtype=pl.UInt32))
    )


def _of_texts(texts: Sequence[str]) -> list[int]:
    """The coupons of texts. A list of coupons has them in the order of updates, unless two are the
    same."""
    codes: list[int] = []
    for start in range(0, len(texts), _LISTED):
        some = texts[start : start + _LISTED]
        together = _listed(some)
        codes += together if len(together) == len(some) else [_listed((text,))[0] for text in some]
    return codes


def _listed(texts: Sequence[str]) -> list[int]:
    sketch = datasketches.hll_sketch(_LEAST_SET)
    for text in texts:
        sketch.update(text)
    listed: list[int] = np.frombuffer(
        bytes(sketch.serialize_compact()), np.uint32, -1, _HEAD
    ).tolist()
    return listed


def _of_words(words: _Uint64s) -> npt.NDArray[np.uint32]:
    """The coupons of eight bytes each, from their MurmurHash3."""
    mixed = words * np.uint64(0x87C37B91114253D5)
    mixed = ((mixed << np.uint64(31)) | (mixed >> np.uint64(33))) * np.uint64(0x4CF5AD432745937F)
    second = np.uint64(_SEED ^ 8)
    first = (mixed ^ second) + second
    other = _final(first + second)
    first = _final(first) + other
    other += first
    high = other >> np.uint64(32)
    # A double holds 32 bits, so its exponent gives their number.
    lengths = np.where(
        high > 0, 32 + np.frexp(high.astype(np.float64))[1], np.frexp(other.astype(np.float64))[1]
    )
    zeros = np.minimum(64 - lengths, 62) + 1
    address = first & np.uint64((1 << _ADDRESS_BITS) - 1)
    result: npt.NDArray[np.uint32] = (
        (zeros.astype(np.uint64) << np.uint64(_ADDRESS_BITS)) | address
    ).astype(np.uint32)
    return result


def _final(words: _Uint64s) -> _Uint64s:
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    words ^= words >> np.uint64(33)
    return words


def _approx(options: Mapping[str, Any]) -> Aggregator[Any]:
    lg_k = options.get("lg_k", _LG_K)
    if type(lg_k) is not int or not 4 <= lg_k <= 21:
        raise ValueError(
            f"approx_count_distinct: `lg_k` must be a whole number from 4 to 21, not {lg_k!r}"
        )
    return ApproxCountDistinct(lg_k)


FUNCTIONS = {
    "approx_count_distinct": AggregateFunction(
        _approx,
        ("lg_k",),
        Sketched,
        VALUES,
        gives="different values, approximately; `lg_k: 12` sets the precision",
        keeps="a few kB at most, whatever the number",
        example={"lg_k": 4},
    )
}
