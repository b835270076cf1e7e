"""The open sessions of all keys of a shard, in columns.

Each open session is one row. A bundle's sessions are merged with the open ones that they overlap,
and the new segment has the whole: it *replaces* its parts in older segments. So nothing older is
rewritten, and the end that is stored with a session is its own, unless a newer segment has a
session that overlaps it.

A newer session may also overlap one that has just closed, if a record came between the last
timestamp of the old one and its end. The old one is gone by then, so nothing is to be replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.few_groups import FewGroups, FewRow, Groups, frame_of
from millwheel.core.columns.groups import GroupsPlan
from millwheel.core.columns.groups_frame import END, KEY, START, key_parts
from millwheel.core.columns.segments import GroupsKind
from millwheel.core.columns.state.windows import ColumnWindows
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MIN_TIME
from millwheel.core.windows.lateness import still_open
from millwheel.core.windows.windows import Window

_ROW, _LATEST = "row", "latest"


class SessionColumns(ColumnWindows):
    """See the head of this file."""

    kind = GroupsKind.SESSIONS
    apart = 1

    def __init__(self, plan: GroupsPlan) -> None:
        super().__init__(plan)
        self._sessions = plan

    def restore(
        self, number: int, level: int, groups: pl.DataFrame, watermark: int, fired: int = MIN_TIME
    ) -> None:
        open_groups = groups.filter(still_open(pl.col(END), watermark))
        if open_groups.height:
            self._take_out(open_groups)
        super().restore(number, level, open_groups, watermark)

    def add(self, groups: Groups) -> None:
        if not groups.height:
            return
        pieces = [groups, *self._take_out(groups)]
        few = [each for each in pieces if isinstance(each, FewGroups)]
        if len(few) == len(pieces):
            super().add(few_sessions(few))
        else:
            whole = pl.concat([frame_of(each) for each in pieces])
            super().add(self._sessions.merge_numbered(whole, sessions_among(whole)))

    def _take_out(self, newer: Groups) -> list[Groups]:
        """Remove the open sessions that newer ones overlap."""
        sessions: list[Groups] = []
        for segment in list(self._segments):
            if (parts := _divided(segment.held, newer)) is not None:
                sessions.append(parts[0])
                self._keep(segment, parts[1])
        return sessions


def _divided(older: Groups, newer: Groups) -> tuple[Groups, Groups] | None:
    """The sessions that newer ones overlap, and the others; None where there is none to replace."""
    if isinstance(older, FewGroups) and isinstance(newer, FewGroups):
        return _few_divided(older, newer)
    frame = frame_of(older)
    overlapped = replaced(frame, frame_of(newer))
    return None if overlapped is None else (frame.filter(overlapped), frame.filter(~overlapped))


def _few_divided(older: FewGroups, newer: FewGroups) -> tuple[Groups, Groups] | None:
    out = {}
    for key, window in newer.rows:
        for each in older.windows_of(key):
            if each.start < window.end and each.end > window.start:
                out[key, each] = older.rows[key, each]
    if not out:
        return None
    stays = {at: row for at, row in older.rows.items() if at not in out}
    return FewGroups(older.form, out), FewGroups(older.form, stays)


def few_sessions(pieces: Sequence[FewGroups]) -> FewGroups:
    """The sessions of some pieces: those of a key that overlap are one. Raises Inexact."""
    form, of_keys = pieces[0].form, dict[Key, list[tuple[Window, FewRow]]]()
    for piece in pieces:
        for (key, window), row in piece.rows.items():
            of_keys.setdefault(key, []).append((window, row))
    rows = {}
    for key, sessions in of_keys.items():
        for window, parts in _spans(sorted(sessions, key=itemgetter(0))):
            rows[key, window] = form.together(parts)
    return FewGroups(form, rows)


def _spans(ordered: Sequence[tuple[Window, FewRow]]) -> Iterator[tuple[Window, list[FewRow]]]:
    """The sessions of a key of pieces in order of time, each with its parts."""
    span, parts = ordered[0][0], [ordered[0][1]]
    for window, row in ordered[1:]:
        if window.start >= span.end:
            yield span, parts
            span, parts = window, [row]
        else:
            span = Window(span.start, max(span.end, window.end))
            parts.append(row)
    yield span, parts


def sessions_among(pieces: pl.DataFrame) -> npt.NDArray[np.int64]:
    """For each piece of a session the number of its session: pieces of a key that overlap have the
    same."""
    names = [f"k{index}" for index, _ in enumerate(key_parts(pieces[KEY]))]
    parts = [part.alias(name) for name, part in zip(names, key_parts(pieces[KEY]), strict=True)]
    frame = pl.DataFrame(
        [*parts, pieces[START], pieces[END], pl.Series(_ROW, np.arange(pieces.height))]
    )
    ordered = frame.sort([*names, START]).with_columns(
        pl.col(END).cum_max().over(names).alias(_LATEST)
    )
    apart = [pl.col(name) != pl.col(name).shift() for name in names]
    begins = pl.any_horizontal(*apart, pl.col(START) >= pl.col(_LATEST).shift()).fill_null(True)
    numbers = np.empty(pieces.height, np.int64)
    numbers[ordered[_ROW].to_numpy()] = (
        ordered.select(begins.cum_sum().cast(pl.Int64)).to_series().to_numpy()
    )
    return numbers


def replaced(older: pl.DataFrame, newer: pl.DataFrame) -> pl.Series | None:
    """Which of the older sessions are overlapped by newer ones; None if none is. The older ones do
    not overlap each other."""
    rows = older.select(KEY, START, END).with_row_index(_ROW)
    near = rows.filter(pl.col(START) < newer[END].max(), pl.col(END) > newer[START].min())
    candidates = near.join(newer.select(KEY).unique(), on=KEY, how="semi", maintain_order="left")
    if not candidates.height:
        return None
    numbers = sessions_among(
        pl.concat([candidates.select(KEY, START, END), newer.select(KEY, START, END)])
    )
    touched = np.isin(numbers[: candidates.height], numbers[candidates.height :])
    if not touched.any():
        return None
    mask = np.zeros(older.height, np.bool_)
    mask[candidates[_ROW].to_numpy()[touched]] = True
    return pl.Series(mask)


def without_replaced(segments: Sequence[Any]) -> list[pl.DataFrame]:
    """The groups of stored segments, the oldest first, without sessions that a newer one has
    replaced."""
    remaining: list[pl.DataFrame] = []
    for newer in segments:
        masks = [replaced(older, newer) if newer.height else None for older in remaining]
        remaining = [
            older if mask is None else older.filter(~mask)
            for older, mask in zip(remaining, masks, strict=True)
        ]
        remaining.append(newer)
    return remaining
