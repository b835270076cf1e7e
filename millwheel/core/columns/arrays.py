"""The windows of whole columns of timestamps, for aggregations that run on columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millwheel.core.windows.windows import Cumulative, Global, Sliding, Tumbling, Window, WindowFunction

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Assigned:
    """One entry per (record, window): the record's place in the column, and the window's start and end (µs).

    Entries are ordered by record, and within it by end. For windows that do not overlap ``rows`` counts up.
    """

    rows: npt.NDArray[np.intp]
    starts: Times
    ends: Times


def can_assign(function: WindowFunction) -> bool:
    """True for window functions that :func:`assign_array` supports: those that depend on the timestamp only."""
    return isinstance(function, (Tumbling, Sliding, Cumulative, Global))


def assign_array(function: WindowFunction, timestamps: Times) -> Assigned:
    """What ``function.assign`` returns for each timestamp. ValueError for window functions without a column form."""
    if isinstance(function, Tumbling):
        return _each_once(*_tumbling(function, timestamps))
    if isinstance(function, Sliding):
        return _sliding(function, timestamps)
    if isinstance(function, Cumulative):
        return _cumulative(function, timestamps)
    if isinstance(function, Global):
        [window] = function.assign(0)
        return _each_once(np.full_like(timestamps, window.start), np.full_like(timestamps, window.end))
    raise ValueError(f"{type(function).__name__} windows are not assigned by column")


def _each_once(starts: Times, ends: Times) -> Assigned:
    return Assigned(np.arange(len(starts)), starts, ends)


def _tumbling(function: Tumbling, timestamps: Times) -> tuple[Times, Times]:
    if not function.time_zone:
        starts = timestamps - np.mod(timestamps - function.offset, function.size)
        return starts, starts + function.size
    return _by_days(function, timestamps)


def _by_days(function: Tumbling, timestamps: Times) -> tuple[Times, Times]:
    """Days are few: find each once, and give it to all records that lie in it."""
    order = np.argsort(timestamps, kind="stable")
    ordered = timestamps[order]
    starts, ends = np.empty_like(timestamps), np.empty_like(timestamps)
    place = 0
    while place < len(ordered):
        window: Window = function.window(int(ordered[place]))
        after = int(np.searchsorted(ordered, window.end))
        starts[order[place:after]], ends[order[place:after]] = window
        place = after
    return starts, ends


def _sliding(function: Sliding, timestamps: Times) -> Assigned:
    size, every = function.size, function.every
    last = timestamps - np.mod(timestamps - function.offset, every)
    counts = (last - timestamps + size + every - 1) // every
    rows, back = _repeat(counts)
    starts = last[rows] - (counts[rows] - 1 - back) * every
    return Assigned(rows, starts, starts + size)


def _cumulative(function: Cumulative, timestamps: Times) -> Assigned:
    bases, limits = _tumbling(function.periods, timestamps)
    every = function.every
    first = np.minimum(timestamps + every - np.mod(timestamps - bases, every), limits)
    counts = -((first - limits) // every) + 1
    rows, ahead = _repeat(counts)
    ends = np.minimum(first[rows] + ahead * every, limits[rows])
    return Assigned(rows, bases[rows], ends)


def _repeat(counts: Times) -> tuple[npt.NDArray[np.intp], Times]:
    """Each place as often as its count, and which of its repetitions each is."""
    rows = np.repeat(np.arange(len(counts)), counts)
    begins = np.cumsum(counts) - counts
    return rows, np.arange(len(rows)) - begins[rows]
