"""Exact sums of numbers, as the accumulator of a row and as two columns.

Floats are summed without any rounding: an accumulator holds the exact sum as floats of falling size
(the sum as Python's ``math.fsum`` rounds it, then the remainder, and so on). The same records give
the same bits in any grouping, records can be subtracted again, and the result is the correctly
rounded sum. A sum beyond all floats is held as well: which record left the range would be chance,
so only a result can be beyond it.

In columns a sum is two 128-bit integers, for the digits before and after the point. A float of
ordinary size is a whole number of 2**-90. Sums of such numbers are exact in any order, and rounding
them once at the end gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.lazy_polars import pl
from millwheel.errors import RecordError

Exact = list[Any]
"""``[whole, float, float, ...]``, whose sum is exact. ``whole`` is the sum of the ints, as text
beyond 64 bits. There is at least one float if any was added, so that a sum of floats stays a float
(also once they are subtracted again). Where their sum is beyond all floats, the first of them is
its whole part instead, as ``[text]``."""

INT64 = 2**63
"""Fixed: integers from here on are not an int64."""
SCALE_BITS = 90  # Fixed: of the fraction in an exact sum; stored sums have it
_SCALE = 2.0**SCALE_BITS  # Fixed: the factor of fractions
_ONE = 1 << SCALE_BITS  # Fixed: one, in the scale of exact sums
_LEAST = 2.0**-37
"""A float of at least this size has no bit below 2**-90."""
_MOST = 2.0**60  # Fixed: larger numbers do not fit an exact sum
_SMALL_SUM = 1 << 36  # Fixed: below it the scaled sum fits 128 bits
_fsum = math.fsum


def exact_floats(parts: Sequence[Any]) -> list[Any]:
    """The canonical floats with exactly the same sum as ``parts``: each is the rounded sum of the
    rest."""
    try:
        total = _fsum(parts)
    except (OverflowError, ValueError, TypeError):
        return _far_floats(sum(map(_part, parts), Fraction(0)))
    floats = [total + 0.0]
    rest = [*parts, -total]
    remainder = _fsum(rest)
    while remainder:
        floats.append(remainder)
        rest.append(-remainder)
        remainder = _fsum(rest)
    return floats


def _far_floats(total: Fraction) -> list[Any]:
    """The same where the sum of some of them is beyond all floats, whether that of all is or not:
    so the result does not depend on their order."""
    try:
        floats: list[Any] = [float(total)]
    except OverflowError:
        floats = [[str(int(total))]]
    rest = total - _part(floats[0])
    while rest:
        floats.append(float(rest))
        rest -= Fraction(floats[-1])
    return floats


def _part(number: Any) -> Fraction:
    return Fraction(number[0] if type(number) is list else number)


def exact_add(acc: Exact, values: Sequence[Any]) -> Exact:
    """``acc`` with the values added."""
    floats = acc[1:]
    if len(values) == 1 and type(values[0]) is float:
        floats.append(values[0])
        return [acc[0], *exact_floats(floats)]
    whole = int(acc[0])
    for value in values:
        if type(value) is float or type(value) is list:
            floats.append(value)
        else:
            whole += int(value)
    stored = whole if -INT64 <= whole < INT64 else str(whole)
    return [stored, *exact_floats(floats)] if len(floats) > 1 else [stored, *floats]


def exact_value(acc: Exact) -> int | float:
    """The sum: an int when only ints were added (and it fits 64 bits), else the nearest float.
    Raises RecordError where it is beyond all floats."""
    whole = int(acc[0])
    if len(acc) == 1:
        return whole if -INT64 <= whole < INT64 else float(whole)
    try:
        if -(2**53) <= whole <= 2**53 and type(acc[1]) is float:
            return _fsum((whole, *acc[1:]))
        return float(fraction(acc))
    except OverflowError as ex:
        raise RecordError("the sum has left the range of floating point numbers") from ex


def fraction(acc: Exact) -> Fraction:
    """The sum, exactly."""
    return sum(map(_part, acc[1:]), Fraction(int(acc[0])))


# --- in columns -----------------------------------------------------------------------------------


def whole_part(column: pl.Expr) -> pl.Expr:
    """The whole parts of floats that fit: converted by way of 64 bits, which processors do
    directly."""
    return column.cast(pl.Int64).cast(pl.Int128)


def fraction_part(column: pl.Expr) -> pl.Expr:
    """The fractions, in units of 2**-90. Truncation towards zero is exact; rounding down would not
    be."""
    return ((column - column.cast(pl.Int64).cast(pl.Float64)) * _SCALE).cast(pl.Int128)


def fits(column: pl.Expr) -> pl.Expr:
    """True when all floats of a column can be held."""
    size = column.abs()
    return ((size < _MOST) & ((size >= _LEAST) | (column == column.floor()))).all()


def as_floats(wholes: pl.Series, fractions: pl.Series) -> pl.Series:
    """The sums as the nearest floats."""
    if max(map(abs, extremes(wholes))) < _SMALL_SUM:
        scaled: pl.Series = (wholes * pl.Series([_ONE], dtype=pl.Int128) + fractions).cast(
            pl.Float64
        ) / _SCALE
        return scaled.alias(wholes.name)
    pairs = zip(wholes.to_list(), fractions.to_list(), strict=True)
    return pl.Series(
        wholes.name, [(whole * _ONE + part) / _ONE for whole, part in pairs], pl.Float64
    )


def to_exact(whole: int, fraction: int) -> Exact:
    """The accumulator of a sum of floats."""
    return [0, *floats_of(whole * _ONE + fraction, SCALE_BITS)]


def floats_of(total: int, bits: int) -> list[float]:
    """The canonical floats whose exact sum is ``total`` / 2**bits: each is the rounded sum of the
    rest."""
    parts = [total / (1 << bits)]
    rest = total - scaled(parts[0], bits)
    while rest:
        parts.append(rest / (1 << bits))
        rest -= scaled(parts[-1], bits)
    return parts


def from_exact(acc: Sequence[Any]) -> tuple[int, int]:
    """The two parts of an accumulator's sum; Inexact when it has bits below 2**-90 or is too
    large."""
    if any(type(part) is list for part in acc[1:]):
        raise Inexact
    total = int(acc[0]) * _ONE + sum(scaled(part, SCALE_BITS) for part in acc[1:])
    whole, fraction = total >> SCALE_BITS, total & (_ONE - 1)
    if not -_MOST < whole < _MOST:
        raise Inexact
    return whole, fraction


def scaled(number: float, bits: int) -> int:
    """``number`` * 2**bits; Inexact when that is not a whole number."""
    above, below = number.as_integer_ratio()
    quotient, rest = divmod(above << bits, below)
    if rest:
        raise Inexact
    return quotient


def extremes(column: pl.Series) -> tuple[int, int]:
    """The lowest and the highest of whole numbers; zeros for none."""
    lowest: Any = column.min()
    highest: Any = column.max()
    return (lowest, highest) if len(column) else (0, 0)


def check_int64(column: pl.Series) -> pl.Series:
    """Whole sums as Int64; Inexact when one does not fit."""
    lowest, highest = extremes(column)
    if not -INT64 <= lowest <= highest < INT64:
        raise Inexact
    whole: pl.Series = column.cast(pl.Int64)
    return whole
