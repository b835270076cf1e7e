"""Exact sums of floats in columns: two 128-bit integers, for the digits before and after the point.

A float of ordinary size is a whole number of 2**-90. Sums of such numbers are exact in any order, and rounding them
once at the end gives the bits that :mod:`millwheel.core.aggregates.numeric` gives record by record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.aggregates.numeric import Exact
from millwheel.core.columns.lazy_polars import pl

SCALE_BITS = 90  # Fixed: of the fraction in an exact sum; stored sums have it
_SCALE = 2.0**SCALE_BITS  # Fixed: what fractions are multiplied by
_ONE = 1 << SCALE_BITS  # Fixed: one, in the scale of exact sums
_LEAST = 2.0**-37
"""A float of at least this size has no bit below 2**-90."""
_MOST = 2.0**60  # Fixed: larger numbers do not fit an exact sum
_SMALL_SUM = 1 << 36  # Fixed: below it the scaled sum fits 128 bits
_INT64 = 2**63  # Fixed: integers from here on are no int64


class Unfit(Exception):
    """A number that the column form cannot hold exactly."""


def whole_part(column: pl.Expr) -> pl.Expr:
    """The whole parts of floats that fit: converted by way of 64 bits, which processors do directly."""
    return column.cast(pl.Int64).cast(pl.Int128)


def fraction_part(column: pl.Expr) -> pl.Expr:
    """The fractions, in units of 2**-90. Truncation towards zero is exact; rounding down would not be."""
    return ((column - column.cast(pl.Int64).cast(pl.Float64)) * _SCALE).cast(pl.Int128)


def fits(column: pl.Expr) -> pl.Expr:
    """True when all floats of a column can be held."""
    size = column.abs()
    return ((size < _MOST) & ((size >= _LEAST) | (column == column.floor()))).all()


def as_floats(wholes: pl.Series, fractions: pl.Series) -> pl.Series:
    """The sums as the nearest floats."""
    if max(map(abs, extremes(wholes))) < _SMALL_SUM:
        scaled: pl.Series = (wholes * pl.Series([_ONE], dtype=pl.Int128) + fractions).cast(pl.Float64) / _SCALE
        return scaled.alias(wholes.name)
    pairs = zip(wholes.to_list(), fractions.to_list(), strict=True)
    return pl.Series(wholes.name, [(whole * _ONE + part) / _ONE for whole, part in pairs], pl.Float64)


def to_exact(whole: int, fraction: int) -> Exact:
    """The accumulator of a sum of floats."""
    return [0, *floats_of(whole * _ONE + fraction, SCALE_BITS)]


def floats_of(total: int, bits: int) -> list[float]:
    """The canonical floats whose exact sum is ``total`` / 2**bits: each is the rounded sum of the rest."""
    parts = [total / (1 << bits)]
    rest = total - scaled(parts[0], bits)
    while rest:
        parts.append(rest / (1 << bits))
        rest -= scaled(parts[-1], bits)
    return parts


def from_exact(acc: Sequence[Any]) -> tuple[int, int]:
    """The two parts of an accumulator's sum; Unfit when it has bits below 2**-90 or is too large."""
    total = int(acc[0]) * _ONE + sum(scaled(part, SCALE_BITS) for part in acc[1:])
    whole, fraction = total >> SCALE_BITS, total & (_ONE - 1)
    if not -_MOST < whole < _MOST:
        raise Unfit
    return whole, fraction


def scaled(number: float, bits: int) -> int:
    """``number`` * 2**bits; Unfit when that is no whole number."""
    above, below = number.as_integer_ratio()
    found, rest = divmod(above << bits, below)
    if rest:
        raise Unfit
    return found


def extremes(column: pl.Series) -> tuple[int, int]:
    """The lowest and the highest of whole numbers; zeros for none."""
    lowest: Any = column.min()
    highest: Any = column.max()
    return (lowest, highest) if len(column) else (0, 0)


def check_int64(column: pl.Series) -> pl.Series:
    """Whole sums as Int64; Unfit when one does not fit."""
    lowest, highest = extremes(column)
    if not -_INT64 <= lowest <= highest < _INT64:
        raise Unfit
    whole: pl.Series = column.cast(pl.Int64)
    return whole
