"""The slices that answer for a window, and the span that they cover.

    covering   [T - H, T) widened to the edges of slices
    inside     [T - H, T) narrowed to them
    exact      [T - H, T) itself, which must end on them

The span is divided into as few slices as possible: at each point the coarsest one that begins
there. The last one may still grow; its accumulator is used even where the slice reaches beyond the
span, as long as none of its records does. 30 days in slices of 5 minutes, 1 hour and 1 day are at
most 11 + 23 + 31 accumulators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millwheel.core.model.times import LAST_TIME, MIN_TIME, duration_text
from millwheel.core.slices.levels import SliceLevel
from millwheel.engine.queries.model import Mode, QueryError
from millwheel.errors import RecordError


class SlicePiece(NamedTuple):
    """One slice of one level, [start, end)."""

    level: int
    start_us: int
    end_us: int


class SliceSpan(NamedTuple):
    """[start, end) on the edges of slices; empty when they are equal."""

    start_us: int
    end_us: int


def span_of(
    levels: Sequence[SliceLevel], window_us: int | None, until_us: int, mode: Mode
) -> SliceSpan:
    """The span that answers for ``[until - window, until)``. Raises QueryError for an invalid
    window, and in mode ``exact`` for one that is not on edges."""
    if mode is Mode.OPEN:
        raise QueryError(
            "bad_window", "slices are asked for a window, such as 1h; open is for windows that fire"
        )
    if window_us is None or window_us <= 0:
        window = "no window" if window_us is None else f"a window of {window_us}us"
        raise QueryError(
            "bad_window",
            f"{window} was given; slices are asked for a window longer than 0, such as 1h",
        )
    since_us = until_us - window_us
    if since_us < MIN_TIME or until_us > LAST_TIME:
        raise QueryError("bad_window", "the window lies outside of the times that records can have")
    try:
        first, last = levels[0].bounds(since_us), levels[0].bounds(until_us - 1)
    except RecordError as ex:
        raise QueryError("bad_window", str(ex)) from None
    if mode is Mode.COVERING:
        return SliceSpan(first[0], last[1])
    if mode is Mode.INSIDE:
        start = first[0] if first[0] == since_us else first[1]
        end = last[1] if last[1] == until_us else last[0]
        return SliceSpan(start, max(start, end))
    if first[0] != since_us or last[1] != until_us:
        size = duration_text(levels[0].size_us)
        raise QueryError(
            "bad_window",
            f"the window [{since_us}, {until_us}) does not begin and end on edges of slices of"
            f" {size}: the nearest that covers it is [{first[0]}, {last[1]}); ask with mode"
            " covering or inside",
        )
    return SliceSpan(since_us, until_us)


def pieces(
    levels: Sequence[SliceLevel], span: SliceSpan, beyond: bool = False
) -> Iterator[SlicePiece]:
    """The slices that make up a span, in order. ``beyond``: the last one may extend past the end of
    the span; it may be used only if none of its records does."""
    at = span.start_us
    while at < span.end_us:
        piece = _coarsest(levels, at, span.end_us, beyond)
        yield piece
        at = piece.end_us


def _coarsest(levels: Sequence[SliceLevel], at_us: int, end_us: int, beyond: bool) -> SlicePiece:
    for level in reversed(levels[1:]):
        start, end = level.bounds(at_us)
        if start == at_us and (end <= end_us or beyond):
            return SlicePiece(level.number, start, end)
    start, end = levels[0].bounds(at_us)
    return SlicePiece(0, start, end)
