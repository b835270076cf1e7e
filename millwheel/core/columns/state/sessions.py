"""The open sessions of all keys of a shard, in columns.

Each open session is one row. A bundle's sessions are put together with the open ones that they overlap, and the new
segment has the whole: it *replaces* what older segments have of it. So nothing older is rewritten, and the end that is
stored with a session is its own, unless a newer segment has a session that overlaps it.

A session that has closed may be overlapped by a newer one, too, of a record that came between the last timestamp of the
old one and its end, when it had just closed. It is gone by then, which is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.plan import END, KEY, START, ColumnPlan, key_parts
from millwheel.core.columns.windows import ColumnWindows, GroupsKind
from millwheel.core.lazy_polars import pl
from millwheel.core.model.times import MIN_TIME
from millwheel.core.windows.lateness import still_open

_ROW, _LATEST = "row", "latest"


class SessionColumns(ColumnWindows):
    """See the head of this file."""

    kind = GroupsKind.SESSIONS
    apart = 1

    def __init__(self, plan: ColumnPlan) -> None:
        super().__init__(plan)
        self._sessions = plan

    def restore(self, number: int, level: int, groups: pl.DataFrame, watermark: int, fired: int = MIN_TIME) -> None:
        kept = groups.filter(still_open(pl.col(END), watermark))
        if kept.height:
            self._take_out(kept)
        super().restore(number, level, kept, watermark)

    def add(self, groups: pl.DataFrame) -> None:
        if groups.height:
            whole = pl.concat([groups, *self._take_out(groups)])
            super().add(self._sessions.merge_numbered(whole, sessions_among(whole)))

    def _take_out(self, newer: pl.DataFrame) -> list[pl.DataFrame]:
        """Remove the open sessions that newer ones overlap."""
        found = []
        for segment in list(self._segments):
            overlapped = replaced(segment.groups, newer)
            if overlapped is not None:
                found.append(segment.groups.filter(overlapped))
                self._keep(segment, segment.groups.filter(~overlapped))
        return found


def sessions_among(pieces: pl.DataFrame) -> npt.NDArray[np.int64]:
    """For each piece of a session the number of its session: pieces of a key that overlap are of the same."""
    names = [f"k{index}" for index, _ in enumerate(key_parts(pieces[KEY]))]
    parts = [part.alias(name) for name, part in zip(names, key_parts(pieces[KEY]), strict=True)]
    frame = pl.DataFrame([*parts, pieces[START], pieces[END], pl.Series(_ROW, np.arange(pieces.height))])
    ordered = frame.sort([*names, START]).with_columns(pl.col(END).cum_max().over(names).alias(_LATEST))
    apart = [pl.col(name) != pl.col(name).shift() for name in names]
    begins = pl.any_horizontal(*apart, pl.col(START) >= pl.col(_LATEST).shift()).fill_null(True)
    numbers = np.empty(pieces.height, np.int64)
    numbers[ordered[_ROW].to_numpy()] = ordered.select(begins.cum_sum().cast(pl.Int64)).to_series().to_numpy()
    return numbers


def replaced(older: pl.DataFrame, newer: pl.DataFrame) -> pl.Series | None:
    """Which of the older sessions are overlapped by newer ones; None when there is none. The older ones do not overlap
    each other."""
    rows = older.select(KEY, START, END).with_row_index(_ROW)
    near = rows.filter(pl.col(START) < newer[END].max(), pl.col(END) > newer[START].min())
    mine = near.join(newer.select(KEY).unique(), on=KEY, how="semi", maintain_order="left")
    if not mine.height:
        return None
    numbers = sessions_among(pl.concat([mine.select(KEY, START, END), newer.select(KEY, START, END)]))
    touched = np.isin(numbers[: mine.height], numbers[mine.height :])
    if not touched.any():
        return None
    mask = np.zeros(older.height, np.bool_)
    mask[mine[_ROW].to_numpy()[touched]] = True
    return pl.Series(mask)


def without_replaced(segments: Sequence[Any]) -> list[pl.DataFrame]:
    """The groups of stored segments, the oldest first, without sessions that a newer one has replaced."""
    kept: list[pl.DataFrame] = []
    for newer in segments:
        masks = [replaced(older, newer) if newer.height else None for older in kept]
        kept = [older if mask is None else older.filter(~mask) for older, mask in zip(kept, masks, strict=True)]
        kept.append(newer)
    return kept
