"""Segments of which each has all rows of the keys that a bundle has changed: its rows of a key
replace those of older segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import Int64s, frame_bytes, frame_from
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state.codes import KeyCodes
from millwheel.core.lazy_polars import pl


class NewestOfKey:
    """Merges such segments."""

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Merge segments: the rows of a key are those of the newest segment that has the key."""
        if len(groups) == 1:
            return groups[0]
        whole = pl.concat(groups, rechunk=True)
        codes = KeyCodes(whole[KEY]).of_records
        numbers = np.repeat(np.arange(len(groups)), [frame.height for frame in groups])
        newest = np.zeros(whole.height, np.int64)
        np.maximum.at(newest, codes, numbers)
        return compact(whole, numbers == newest[codes])


def newest_of(
    keys: KeyCodes, kept: Sequence[pl.DataFrame]
) -> tuple[list[pl.DataFrame], list[Int64s]]:
    """The newest rows of some keys, and the codes of their keys, by segment."""
    frames, codes = [], []
    has_newer = np.zeros(keys.count, np.bool_)
    for frame in reversed(kept):
        rows, own = keys.among(frame[KEY])
        fresh = ~has_newer[own]
        if fresh.any():
            has_newer[own] = True
            frames.append(frame[rows[fresh]])
            codes.append(own[fresh])
    return frames, codes


def compact(whole: pl.DataFrame, chosen: npt.NDArray[Any]) -> pl.DataFrame:
    """Some of the records, without the text of the others: columns of text share it."""
    some = whole.filter(pl.Series(chosen)) if chosen.dtype == np.bool_ else whole[chosen]
    return frame_from(frame_bytes(some)) if 2 * some.height < whole.height else some
