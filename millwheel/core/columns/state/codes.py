"""Numbers for the keys of some records, from 0 without gaps, by which others find them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import Int64s
from millwheel.core.columns.groups_frame import key_parts
from millwheel.core.lazy_polars import pl

_INT64 = 2**63  # Fixed: integers from here on are not an int64
_BITS = 18
"""The size of a table that rules out most absent keys: a quarter of a megabyte, near the core."""
_MIX = np.uint64(0x9E3779B97F4A7C15)  # Fixed: 2**64 over the golden ratio, which mixes well
_CODE, _ROW = "code", "row"


class KeyCodes:
    """The numbers of the keys of a column: those ``of_records``, and their ``count``."""

    def __init__(self, keys: pl.Series) -> None:
        parts = key_parts(keys)
        self._bounds = _bounds(parts)
        if self._bounds:
            self._whole, codes = np.unique(self._packed(parts)[1], return_inverse=True)
            self._table = np.zeros(1 << _BITS, np.bool_)
            self._table[_mixed(self._whole)] = True
            self.of_records: Int64s = codes
            self.count = len(self._whole)
            return
        frame = _named(parts)
        self._keys = frame.unique(maintain_order=True).with_row_index(_CODE)
        coded = frame.join(self._keys, on=frame.columns, how="left", maintain_order="left")
        self.of_records = coded[_CODE].cast(pl.Int64).to_numpy()
        self.count = self._keys.height

    def among(self, keys: pl.Series) -> tuple[Int64s, Int64s]:
        """The indexes of the keys that have a number, and these numbers."""
        parts = key_parts(keys)
        if not self._bounds:
            frame = _named(parts).with_row_index(_ROW)
            on = [name for name in frame.columns if name != _ROW]
            matches = frame.join(self._keys, on=on, how="inner", maintain_order="left")
            return matches[_ROW].cast(pl.Int64).to_numpy(), matches[_CODE].cast(pl.Int64).to_numpy()
        rows, packed = self._packed(parts)
        maybe = self._table[_mixed(packed)]
        rows, packed = rows[maybe], packed[maybe]
        at = np.minimum(np.searchsorted(self._whole, packed), self.count - 1)
        same = self._whole[at] == packed
        return rows[same], at[same]

    def _packed(self, parts: Sequence[pl.Series]) -> tuple[Int64s, Int64s]:
        """The keys within the bounds, by index, and each as one whole number."""
        columns = [part.to_numpy() for part in parts]
        inside = np.ones(len(columns[0]), np.bool_)
        for column, (first, last) in zip(columns, self._bounds, strict=True):
            inside &= (column >= first) & (column <= last)
        rows = np.flatnonzero(inside)
        packed = np.zeros(len(rows), np.int64)
        for column, (first, last) in zip(columns, self._bounds, strict=True):
            packed = packed * (last - first + 1) + (column[rows] - first)
        return rows, packed


def _bounds(parts: Sequence[pl.Series]) -> list[tuple[int, int]]:
    """The least and the greatest value of each part, if one whole number can hold all parts of a
    key; else an empty list."""
    if not len(parts[0]) or any(part.dtype != pl.Int64 for part in parts):
        return []
    bounds, size = [], 1
    for part in parts:
        numbers = part.to_numpy()
        first, last = int(numbers.min()), int(numbers.max())
        size *= last - first + 1
        bounds.append((first, last))
    return bounds if size < _INT64 else []


def _mixed(numbers: Int64s) -> npt.NDArray[np.uint64]:
    """Their positions in the table."""
    slots: npt.NDArray[np.uint64] = (numbers.view(np.uint64) * _MIX) >> np.uint64(64 - _BITS)
    return slots


def _named(parts: Sequence[pl.Series]) -> pl.DataFrame:
    return pl.DataFrame([part.alias(str(number)) for number, part in enumerate(parts)])
