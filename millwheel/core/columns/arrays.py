"""The windows of whole columns of timestamps, for aggregations that run on columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import key_column, key_list
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.windows.windows import (
    Cumulative,
    Global,
    OfInput,
    Sessions,
    Sliding,
    Tumbling,
    Window,
    WindowFunction,
)
from millwheel.errors import invariant

Times = npt.NDArray[np.int64]
_FAR = 2**62
"""Fixed: the bounds of windows around later times, or as early ones, may not fit into 64 bits, and
end with time."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """One entry per (record, window): the record's index in the column, and the window's start and
    end (µs).

    Entries are ordered by record, and within it by end. For windows that do not overlap ``rows``
    counts up.
    """

    rows: npt.NDArray[np.intp]
    starts: Times
    ends: Times


def can_assign(function: WindowFunction) -> bool:
    """True for window functions that :func:`assign_array` supports: those that depend on the
    timestamp only."""
    return isinstance(function, (Tumbling, Sliding, Cumulative, Global))


def assign_array(function: WindowFunction, timestamps: Times) -> Assigned:
    """The windows that ``function.assign`` returns, for each timestamp. Raises ValueError for
    window functions without a column form, and RecordError as ``assign`` does. Each record is a
    session of its own; see :func:`sessions_of`."""
    if isinstance(function, (Tumbling, Sliding, Cumulative)) and _any_far(function, timestamps):
        return _one_by_one(function.assign, timestamps)
    if isinstance(function, Tumbling):
        return _each_once(*_tumbling(function, timestamps))
    if isinstance(function, Sliding):
        return _sliding(function, timestamps)
    if isinstance(function, Cumulative):
        return _cumulative(function, timestamps)
    if isinstance(function, Sessions):
        return _each_once(timestamps, _after(timestamps, function.gap))
    if isinstance(function, Global):
        [window] = function.assign(0)
        return _each_once(
            np.full_like(timestamps, window.start), np.full_like(timestamps, window.end)
        )
    raise ValueError(f"{type(function).__name__} windows are not assigned by column")


def stated_array(function: OfInput, frame: pl.DataFrame) -> Assigned | None:
    """The windows that ``function.window_of`` finds in each record; None if a record has no bounds
    of a window."""
    if not {function.start, function.end} <= set(frame.columns):
        return None
    columns = frame[function.start], frame[function.end]
    if any(column.dtype != pl.Int64 or column.null_count() for column in columns):
        return None
    starts, ends = (column.to_numpy() for column in columns)
    if ((starts < MIN_TIME) | (starts >= ends) | (ends > MAX_TIME)).any():
        return None
    return _each_once(starts, ends)


def sessions_of(keys: pl.Series, timestamps: Times, gap: int, pieces: bool = False) -> Assigned:
    """The windows that the records of each key form among themselves: each begins with a record,
    continues while the next record follows within less than ``gap`` µs, and ends ``gap`` µs after
    its last record. ``pieces``: those of :class:`.SessionPieces`."""
    parts = keys.struct.unnest().get_columns() if isinstance(keys.dtype, pl.Struct) else [keys]
    names = [str(index) for index in range(len(parts))]
    columns = [part.alias(name) for part, name in zip(parts, names, strict=True)]
    whole = pl.DataFrame(
        [*columns, pl.Series("t", timestamps), pl.Series("row", np.arange(len(timestamps)))]
    )
    ordered = whole.sort([*names, "t"])
    times, rows = ordered["t"].to_numpy(), ordered["row"].to_numpy()
    begins = np.ones(len(times), np.bool_)
    if len(times) > 1:
        other = ordered.select(
            pl.any_horizontal(pl.col(name) != pl.col(name).shift() for name in names)
        ).to_series()
        # Times of a key go up, so the distance of any two fits into 64 bits without a sign.
        apart = (
            np.diff(times // gap) > 0
            if pieces
            else np.diff(times.view(np.uint64)) >= np.uint64(gap)
        )
        begins[1:] = other.to_numpy()[1:] | apart
    firsts = np.flatnonzero(begins)
    sizes = np.diff(np.append(firsts, len(times)))
    lasts = times[firsts + sizes - 1]
    starts, ends = np.empty_like(timestamps), np.empty_like(timestamps)
    starts[rows] = np.repeat(times[firsts], sizes)
    ends[rows] = np.repeat(_after(lasts, gap), sizes)
    return _each_once(starts, ends)


def _any_far(function: Tumbling | Sliding | Cumulative, timestamps: Times) -> bool:
    most = _FAR - abs(function.offset)
    return (
        bool(len(timestamps)) and not -most < int(timestamps.min()) <= int(timestamps.max()) < most
    )


def _one_by_one(assign: Callable[[int], Sequence[Window]], timestamps: Times) -> Assigned:
    """The windows by the row form, once for each different time: results of a global window all
    have the last time."""
    different, which = np.unique(timestamps, return_inverse=True)
    window_lists = [assign(at) for at in different.tolist()]
    counts = np.array([len(windows) for windows in window_lists], np.int64)
    bounds = np.array([window for windows in window_lists for window in windows], np.int64).reshape(
        -1, 2
    )
    rows, ahead = _repeat(counts[which])
    at = (np.cumsum(counts) - counts)[which][rows] + ahead
    return Assigned(rows, bounds[at, 0], bounds[at, 1])


def _after(timestamps: Times, gap: int) -> Times:
    """The ends of windows, cut off as by :func:`within_time`."""
    return np.minimum(timestamps, MAX_TIME - gap) + gap


def _each_once(starts: Times, ends: Times) -> Assigned:
    return Assigned(np.arange(len(starts)), starts, ends)


def _tumbling(function: Tumbling, timestamps: Times) -> tuple[Times, Times]:
    if not function.time_zone:
        starts = timestamps - np.mod(timestamps - function.offset, function.size)
        return starts, starts + function.size
    return _by_days(function, timestamps)


def _by_days(function: Tumbling, timestamps: Times) -> tuple[Times, Times]:
    """Days are few: each is found once, then assigned to all records in it."""
    order = np.argsort(timestamps, kind="stable")
    ordered = timestamps[order]
    starts, ends = np.empty_like(timestamps), np.empty_like(timestamps)
    index = 0
    while index < len(ordered):
        window: Window = function.window(int(ordered[index]))
        after = int(np.searchsorted(ordered, window.end))
        starts[order[index:after]], ends[order[index:after]] = window
        index = after
    return starts, ends


def _sliding(function: Sliding, timestamps: Times) -> Assigned:
    size, every = function.size, function.every
    last = timestamps - np.mod(timestamps - function.offset, every)
    counts = (last - timestamps + size + every - 1) // every
    rows, back = _repeat(counts)
    starts = last[rows] - (counts[rows] - 1 - back) * every
    return Assigned(rows, starts, starts + size)


def first_steps(function: Cumulative, timestamps: Times) -> Assigned:
    """The first of the windows that ``function.assign`` returns, for each timestamp: all others
    contain it."""
    if _any_far(function, timestamps):
        return _one_by_one(lambda at: function.assign(at)[:1], timestamps)
    bases, limits = _tumbling(function.periods, timestamps)
    return _each_once(bases, _first_ends(function, timestamps, bases, limits))


def _first_ends(function: Cumulative, timestamps: Times, bases: Times, limits: Times) -> Times:
    ends: Times = np.minimum(
        timestamps + function.every - np.mod(timestamps - bases, function.every), limits
    )
    return ends


def _cumulative(function: Cumulative, timestamps: Times) -> Assigned:
    bases, limits = _tumbling(function.periods, timestamps)
    every = function.every
    first = _first_ends(function, timestamps, bases, limits)
    counts = -((first - limits) // every) + 1
    rows, ahead = _repeat(counts)
    ends = np.minimum(first[rows] + ahead * every, limits[rows])
    return Assigned(rows, bases[rows], ends)


def _repeat(counts: Times) -> tuple[npt.NDArray[np.intp], Times]:
    """Each index as often as its count, and which of its repetitions each is."""
    rows = np.repeat(np.arange(len(counts)), counts)
    begins = np.cumsum(counts) - counts
    return rows, np.arange(len(rows)) - begins[rows]


Filled = Callable[[Sequence[Key]], Sequence[int]]
"""How many records the window that is filling has, for each of these keys."""
_ROW = "row"


def none_filled(keys: Sequence[Key]) -> Sequence[int]:
    """Zeros, for keys without state."""
    return [0] * len(keys)


@dataclass(frozen=True, slots=True)
class CountedRows:
    """The records of a bundle by count window: ``rows`` are their indexes in the columns, those of
    one window together and in order of arrival, the windows of a key one after the other.
    ``windows`` numbers the window of each."""

    rows: npt.NDArray[np.int64]
    windows: npt.NDArray[np.int64]


def count_windows(keys: pl.Series, size: int, filled: Filled) -> CountedRows:
    """The windows of ``size`` records of each key. The first window of a key continues the one that
    earlier bundles began."""
    parts = keys.struct.unnest().get_columns() if isinstance(keys.dtype, pl.Struct) else [keys]
    names = [str(index) for index in range(len(parts))]
    columns = [part.alias(name) for part, name in zip(parts, names, strict=True)]
    whole = pl.DataFrame([*columns, pl.Series(_ROW, np.arange(len(keys)))])
    by_key = whole.group_by(names, maintain_order=True).agg(_ROW)
    lengths = by_key[_ROW].list.len().to_numpy().astype(np.int64)
    before = np.array(filled(key_list(key_column([by_key[name] for name in names]))), np.int64)
    begins = np.cumsum(lengths) - lengths
    positions = np.arange(len(keys)) - np.repeat(begins - before, lengths)
    # One that is full has fired: a further record in it would be in no result.
    invariant(
        not len(before) or (int(before.min()) >= 0 and int(before.max()) < size),
        f"a count window of {size} records has {before.tolist()[:5]} before",
    )
    first = positions % size == 0
    first[begins] = True
    return CountedRows(by_key[_ROW].explode().to_numpy(), np.cumsum(first))
