"""Window functions: edges, negative time, time zones, and what they refuse."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.arrays import assign_array
from millwheel.core.model.times import LAST_TIME, MAX_TIME, MIN_TIME
from millwheel.core.windows.windows import (
    GLOBAL_WINDOW,
    Count,
    Cumulative,
    Custom,
    Global,
    Sessions,
    Sliding,
    Tumbling,
    Window,
    WindowFunction,
)
from millwheel.core.windows.zones import Days
from millwheel.errors import RecordError

HOUR = 3_600_000_000
DAY = 24 * HOUR

timestamps = st.integers(-(10**15), 4 * 10**15)


def _utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()) * 1_000_000


@given(timestamp=timestamps, size=st.integers(1, 10**12), offset=st.integers(-(10**12), 10**12))
def test_a_tumbling_window_holds_its_record_and_starts_on_the_grid(timestamp: int, size: int, offset: int) -> None:
    [window] = Tumbling(size, offset).assign(timestamp)
    assert window.start <= timestamp < window.end == window.start + size
    assert (window.start - offset) % size == 0


@given(timestamp=timestamps, size=st.integers(1, 2000), every=st.integers(1, 2000), offset=st.integers(-3000, 3000))
def test_sliding_windows_are_exactly_those_that_hold_the_record(
    timestamp: int, size: int, every: int, offset: int
) -> None:
    every = min(size, every)
    windows = Sliding(size, every, offset).assign(timestamp)
    assert all(window.start <= timestamp < window.end and (window.start - offset) % every == 0 for window in windows)
    assert [window.end for window in windows] == sorted({window.end for window in windows})
    assert windows[0].start - every <= timestamp - size  # one more on the left would end too early
    assert windows[-1].start + every > timestamp


@given(timestamp=timestamps, steps=st.integers(1, 40), every=st.integers(1, 2000), offset=st.integers(-3000, 3000))
def test_cumulative_windows_share_a_start_and_grow(timestamp: int, steps: int, every: int, offset: int) -> None:
    windows = Cumulative(steps * every, every, offset).assign(timestamp)
    assert {window.start for window in windows} == {windows[0].start}
    assert all(window.start <= timestamp < window.end for window in windows)
    assert [window.end - windows[0].end for window in windows] == [i * every for i in range(len(windows))]
    assert windows[-1].end - windows[0].start == steps * every
    assert windows[0].end - timestamp <= every


def test_a_record_on_the_edge_belongs_to_the_window_that_starts_there() -> None:
    assert Tumbling("10s").window(10_000_000) == (10_000_000, 20_000_000)
    assert Tumbling(10).window(-1) == (-10, 0)
    assert Tumbling(10).window(-10) == (-10, 0)


def test_durations_may_be_words_or_microseconds() -> None:
    assert Tumbling("1m") == Tumbling(60_000_000)
    assert Sliding("1h", "10ms") == Sliding(3_600_000_000, 10_000)
    assert Sessions("1m30s").gap == 90_000_000


def test_the_global_window_ends_with_time() -> None:
    assert Global().assign(-5) == (GLOBAL_WINDOW,)


def test_session_windows_that_touch_do_not_merge() -> None:
    groups = Sessions(10).merge([Window(20, 30), Window(0, 10), Window(5, 15), Window(15, 18)])
    assert [list(group) for group in groups] == [[(0, 10), (5, 15)], [(15, 18)], [(20, 30)]]


@pytest.mark.parametrize(
    ("zone", "instant", "start", "hours"),
    [
        ("Europe/Berlin", "2024-03-31T12:00", "2024-03-30T23:00", 23),
        ("Europe/Berlin", "2024-10-27T00:59", "2024-10-26T22:00", 25),
        ("Europe/Berlin", "2024-10-27T01:01", "2024-10-26T22:00", 25),
        ("America/New_York", "2024-11-03T05:59", "2024-11-03T04:00", 25),
        # The clock goes from 24:00 to 23:00, and from 24:00 to 01:00: the day begins where the clock jumps.
        ("America/Sao_Paulo", "2018-02-18T01:30", "2018-02-17T02:00", 25),
        ("America/Sao_Paulo", "2018-02-18T02:30", "2018-02-17T02:00", 25),
        ("America/Sao_Paulo", "2018-11-04T03:00", "2018-11-04T03:00", 23),
        # Midnight is shown twice: the first showing counts.
        ("America/Havana", "2023-11-05T04:30", "2023-11-05T04:00", 25),
        ("America/Havana", "2023-11-05T05:30", "2023-11-05T04:00", 25),
        # A day that was skipped altogether.
        ("Pacific/Apia", "2011-12-30T10:30", "2011-12-30T10:00", 24),
        ("Asia/Kolkata", "2024-01-01T00:00", "2023-12-31T18:30", 24),
        ("UTC", "1969-12-31T23:59", "1969-12-31T00:00", 24),
    ],
)
def test_days_in_a_time_zone_are_as_long_as_its_clock_says(zone: str, instant: str, start: str, hours: int) -> None:
    window = Tumbling("1d", time_zone=zone).window(_utc(instant))
    assert window == (_utc(start), _utc(start) + hours * HOUR)


@given(
    timestamp=st.integers(_utc("1971-01-01T00:00"), _utc("2037-01-01T00:00")),
    zone=st.sampled_from(
        ["Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Pacific/Apia", "Australia/Lord_Howe"]
    ),
    count=st.integers(1, 7),
    offset=st.sampled_from([0, 6 * HOUR, -HOUR]),
)
def test_days_follow_each_other_without_gap_or_overlap(timestamp: int, zone: str, count: int, offset: int) -> None:
    days = Tumbling(count * DAY, offset, zone)
    window = days.window(timestamp)
    assert window.start <= timestamp < window.end
    assert days.window(window.end).start == window.end
    assert days.window(window.start - 1).end == window.start
    assert days.window(window.start) == days.window(window.end - 1) == window


def test_days_begin_at_an_hour_of_the_local_clock() -> None:
    window = Tumbling("1d", "6h", "Europe/Berlin").window(_utc("2024-07-01T03:59"))
    assert datetime.fromtimestamp(window.start / 1e6, ZoneInfo("Europe/Berlin")).hour == 6
    assert window == (_utc("2024-06-30T04:00"), _utc("2024-07-01T04:00"))


def test_a_time_that_has_no_day_is_a_fault_of_the_record() -> None:
    with pytest.raises(RecordError, match="outside of years 1 to 9999"):
        Days("Europe/Berlin", 1, 0).bounds(10**18)


@pytest.mark.parametrize(
    ("make", "fix"),
    [
        (lambda: Tumbling(0), "at least 1us"),
        (lambda: Tumbling("ten"), "write a number and a unit"),
        (lambda: Tumbling("12h", time_zone="Europe/Berlin"), "whole days"),
        (lambda: Tumbling("1d", time_zone="Mars/Olympus"), "IANA name"),
        (lambda: Sliding("1m", "2m"), "at most the size"),
        (lambda: Sliding("10s", "3s", changes=True), "multiple of the slide"),
        (lambda: Cumulative("1d", "7h"), "multiple of `every`"),
        (lambda: Sessions(0), "at least 1us"),
        (lambda: Count(0), "at least 1"),
        (lambda: Count(True), "whole number"),
        (lambda: Custom(lambda t: [(t, t)]).assign(5), "before its end"),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(make: Any, fix: str) -> None:
    with pytest.raises(ValueError, match=fix):
        make()


def test_a_custom_window_function_assigns_what_it_likes() -> None:
    window = Custom(lambda t: [(t, t + 5), (t - 5, t + 1)])
    assert window.assign(10) == [(5, 11), (10, 15)]
    assert not window.merging


functions = st.sampled_from(
    [
        Tumbling(10),
        Tumbling(7, 3),
        Tumbling("1d", time_zone="Europe/Berlin"),
        Tumbling("3d", time_zone="America/Havana"),
        Sliding(10, 5),
        Sliding(10, 4, 1),
        Sliding(9, 9),
        Cumulative(20, 5, 2),
        Cumulative("1d", "6h", time_zone="Europe/Berlin"),
        Global(),
    ]
)


@given(function=functions, times=st.lists(st.one_of(st.integers(-100, 100), st.integers(0, 2 * 10**15)), max_size=30))
def test_arrays_of_timestamps_get_the_same_windows(function: WindowFunction, times: list[int]) -> None:
    assigned = assign_array(function, np.array(times, dtype=np.int64))
    found: list[list[tuple[int, int]]] = [[] for _ in times]
    for row, start, end in zip(assigned.rows, assigned.starts, assigned.ends, strict=True):
        found[int(row)].append((int(start), int(end)))
    assert found == [[tuple(window) for window in function.assign(t)] for t in times]
    assert list(assigned.rows) == sorted(assigned.rows)


ALL_OF_TIME = [
    Tumbling("1m"),
    Tumbling("1m", offset="7s"),
    Tumbling(2**63),
    Sliding("1m", "20s"),
    Sessions("1m"),
    Sessions(2**64),
    Cumulative("1h", "20m"),
    Custom(lambda t: [(t - 10**30, t + 10**30)]),
]


@pytest.mark.parametrize("function", ALL_OF_TIME)
@pytest.mark.parametrize("timestamp", [MIN_TIME, MIN_TIME + 1, 0, LAST_TIME - 1, LAST_TIME])
def test_windows_end_with_time(function: WindowFunction, timestamp: int) -> None:
    windows = function.assign(timestamp)
    assert windows
    for window in windows:
        assert MIN_TIME <= window.start <= timestamp < window.end <= MAX_TIME


def test_a_custom_window_outside_of_time_is_refused() -> None:
    with pytest.raises(ValueError, match="outside of all time"):
        Custom(lambda t: [(2**63, 2**64)]).assign(0)
