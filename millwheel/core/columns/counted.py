"""The count windows of whole columns of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import key_column, key_list
from millwheel.core.columns.lazy_polars import pl
from millwheel.core.model.keys import Key

Filled = Callable[[Sequence[Key]], Sequence[int]]
"""How many records the window that is filling has, for each of these keys."""

_ROW = "row"


def none_filled(keys: Sequence[Key]) -> Sequence[int]:
    """Where there is no state yet."""
    return [0] * len(keys)


@dataclass(frozen=True, slots=True)
class CountedRows:
    """The records of a bundle by count window: ``rows`` are their indexes in the columns, those of one window together
    and in order of arrival, the windows of a key one after the other. ``windows`` numbers the window of each."""

    rows: npt.NDArray[np.int64]
    windows: npt.NDArray[np.int64]


def count_windows(keys: pl.Series, size: int, filled: Filled) -> CountedRows:
    """The windows of ``size`` records of each key. The first of a key goes on where the bundle before it stopped."""
    parts = keys.struct.unnest().get_columns() if isinstance(keys.dtype, pl.Struct) else [keys]
    names = [str(index) for index in range(len(parts))]
    columns = [part.alias(name) for part, name in zip(parts, names, strict=True)]
    whole = pl.DataFrame([*columns, pl.Series(_ROW, np.arange(len(keys)))])
    by_key = whole.group_by(names, maintain_order=True).agg(_ROW)
    lengths = by_key[_ROW].list.len().to_numpy().astype(np.int64)
    before = np.array(filled(key_list(key_column([by_key[name] for name in names]))), np.int64)
    begins = np.cumsum(lengths) - lengths
    positions = np.arange(len(keys)) - np.repeat(begins - before, lengths)
    first = positions % size == 0
    first[begins] = True
    return CountedRows(by_key[_ROW].explode().to_numpy(), np.cumsum(first))
