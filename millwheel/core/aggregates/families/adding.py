"""Counts and sums of the groups of a bundle, added up by NumPy at half the cost of a hash table of
keys and windows.

Whole numbers that lie close together are their own indexes in a table. Each record has one cell of
a table of all keys and windows of its bundle; the cells with records are the groups, ordered by
window and then by key. Floats are summed in parts so short that no addition rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.families.exact_sums import SCALE_BITS
from millwheel.core.lazy_polars import pl
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.windows.windows import Tumbling

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MOST_RECORDS = 1 << 19
"""The parts below are short enough for as many additions."""
_CELLS_PER_RECORD = 32
"""A table with more cells than this, and _CELLS, takes longer to scan than a hash table takes for
the records."""
_CELLS = 1 << 12  # this many are looked through in no time
# Fixed: parts of floats are multiples of 2**-20, of 2**-55, and the remainder
_GRID_BITS, _FINE_BITS = 20, 55
_TO_GRID, _TO_FINE = 1.5 * 2.0 ** (52 - _GRID_BITS), 1.5 * 2.0 ** (52 - _FINE_BITS)
"""Floats that, added and subtracted again, round to these multiples."""
_MOST_SUM = 2.0 ** (53 - _GRID_BITS)  # Fixed: sums of multiples of 2**-20 are exact below it
_EXACT = 2**53  # Fixed: a float holds every whole number below it
_HALF_BITS, _HALF = 32, (1 << 32) - 1  # Fixed: whole numbers are added in halves


class Unadded(Exception):
    """Numbers that cannot be added up here; a hash table can hold them."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The groups of a bundle. ``numbers`` has the group of each record; each group has its
    ``keys``, by part, and ``starts``."""

    numbers: npt.NDArray[np.intp]
    keys: list[Int64s]
    starts: Int64s

    def __len__(self) -> int:
        return len(self.starts)

    def counts(self, mask: npt.NDArray[np.bool_] | None = None) -> pl.Series:
        """The number of records of each group for which ``mask`` is true."""
        if mask is None:
            return pl.Series(np.bincount(self.numbers, minlength=len(self)))
        return pl.Series(np.bincount(self.numbers, mask, len(self)).astype(np.int64))

    def wholes(self, values: Int64s) -> pl.Series:
        """The sums of whole numbers."""
        if max(-int(values.min()), int(values.max())) * len(values) < _EXACT:
            return _wide(self._sums(values), 0)
        high, low = self._sums(values >> _HALF_BITS), self._sums(values & _HALF)
        sums: pl.Series = _wide(high, _HALF_BITS) + _wide(low, 0)
        return sums

    def floats(self, values: Floats) -> tuple[pl.Series, pl.Series]:
        """The sums of floats that fit, as :mod:`.exact_sums` has them. Raises Unadded where they
        are too large."""
        if max(-float(values.min()), float(values.max())) * max(len(values), 4) >= _MOST_SUM:
            raise Unadded
        grid = values + _TO_GRID
        grid -= _TO_GRID
        rest = values - grid
        fine = rest + _TO_FINE
        fine -= _TO_FINE
        rest -= fine
        sums = self._sums(grid)
        whole = np.trunc(sums)
        part = ((sums - whole) * 2.0**_GRID_BITS).astype(np.int64) << (_FINE_BITS - _GRID_BITS)
        part += (self._sums(fine) * 2.0**_FINE_BITS).astype(np.int64)
        fraction = _wide(part, SCALE_BITS - _FINE_BITS)
        if rest.any():
            fraction = fraction + _wide(self._sums(rest) * 2.0**SCALE_BITS, 0)
        return _wide(whole, 0), fraction

    def _sums(self, values: Int64s | Floats) -> Floats:
        return np.bincount(self.numbers, values, len(self)).astype(np.float64, copy=False)


def _wide(values: Int64s | Floats, bits: int) -> pl.Series:
    """Whole numbers times 2**bits."""
    wide: pl.Series = pl.Series(values.astype(np.int64, copy=False)).cast(pl.Int128)
    return wide * pl.Series([1 << bits], dtype=pl.Int128) if bits else wide


def cells(keys: Sequence[pl.Series], stamps: Int64s, window: Tumbling) -> Cells | None:
    """The groups of records with these keys, given by part, and timestamps. None where a hash table
    is better: for text, and for numbers or times that are far apart."""
    count = len(stamps)
    if (
        not 0 < count <= _MOST_RECORDS
        or window.time_zone
        or any(part.dtype != pl.Int64 for part in keys)
    ):
        return None
    if int(stamps.min()) - window.size < MIN_TIME + abs(window.offset):
        return None
    if int(stamps.max()) + window.size > MAX_TIME - abs(window.offset):
        return None
    times = stamps - window.offset if window.offset else stamps
    columns = [times // window.size, *(part.to_numpy() for part in keys)]
    firsts = [int(column.min()) for column in columns]
    widths = [int(column.max()) - first + 1 for column, first in zip(columns, firsts, strict=True)]
    size = 1
    for width in widths:
        size *= width
    if size > count * _CELLS_PER_RECORD + _CELLS:
        return None
    spots = columns[0] - firsts[0]
    for column, first, width in zip(columns[1:], firsts[1:], widths[1:], strict=True):
        spots *= width
        spots += column
        spots -= first
    numbers, indices = _numbered(spots, size)
    parts: list[Int64s] = []
    for first, width in zip(firsts[:0:-1], widths[:0:-1], strict=True):
        indices, part = np.divmod(indices, width)
        parts.append(part + first)
    return Cells(numbers, parts[::-1], (indices + firsts[0]) * window.size + window.offset)


def _numbered(spots: Int64s, size: int) -> tuple[npt.NDArray[np.intp], Int64s]:
    """The rank of each spot among the spots that occur, and these, in order."""
    used = np.zeros(size, np.bool_)
    used[spots] = True
    distinct = np.flatnonzero(used)
    ranks = np.empty(size, np.intp)
    ranks[distinct] = np.arange(len(distinct))
    return ranks[spots], distinct
