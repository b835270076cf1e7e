"""Window functions: edges, negative time, time zones, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.times import LAST_TIME, MAX_TIME, MIN_TIME
from millwheel.core.windows.windows import (
    GLOBAL_WINDOW,
    Count,
    Cumulative,
    Custom,
    Global,
    OfInput,
    SessionPieces,
    Sessions,
    Sliding,
    Tumbling,
    Window,
    WindowFunction,
)
from millwheel.errors import RecordError

timestamps = st.integers(-(10**15), 4 * 10**15)


@given(timestamp=timestamps, size=st.integers(1, 10**12), offset=st.integers(-(10**12), 10**12))
def test_a_tumbling_window_holds_its_record_and_starts_on_the_grid(
    timestamp: int, size: int, offset: int
) -> None:
    [window] = Tumbling(size, offset).assign(timestamp)
    assert window.start <= timestamp < window.end == window.start + size
    assert (window.start - offset) % size == 0


@given(
    timestamp=timestamps,
    size=st.integers(1, 2000),
    every=st.integers(1, 2000),
    offset=st.integers(-3000, 3000),
)
def test_sliding_windows_are_exactly_those_that_hold_the_record(
    timestamp: int, size: int, every: int, offset: int
) -> None:
    every = min(size, every)
    windows = Sliding(size, every, offset).assign(timestamp)
    assert all(
        window.start <= timestamp < window.end and (window.start - offset) % every == 0
        for window in windows
    )
    assert [window.end for window in windows] == sorted({window.end for window in windows})
    assert windows[0].start - every <= timestamp - size  # one more on the left would end too early
    assert windows[-1].start + every > timestamp


@given(
    timestamp=timestamps,
    steps=st.integers(1, 40),
    every=st.integers(1, 2000),
    offset=st.integers(-3000, 3000),
)
def test_cumulative_windows_share_a_start_and_grow(
    timestamp: int, steps: int, every: int, offset: int
) -> None:
    windows = Cumulative(steps * every, every, offset).assign(timestamp)
    assert {window.start for window in windows} == {windows[0].start}
    assert all(window.start <= timestamp < window.end for window in windows)
    assert [window.end - windows[0].end for window in windows] == [
        i * every for i in range(len(windows))
    ]
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


@given(st.lists(st.tuples(st.integers(-40, 60), st.integers(0, 2)), max_size=20), st.integers(1, 9))
def test_sessions_are_the_unions_of_the_pieces_that_parts_know(
    made: list[tuple[int, int]], gap: int
) -> None:
    whole, pieces = Sessions(gap), SessionPieces(gap)

    def spans(function: Sessions, windows: list[Window]) -> list[Window]:
        return [
            Window(min(each)[0], max(one.end for one in each)) for each in function.merge(windows)
        ]

    parts = [
        [whole.assign(at)[0] for at, instance in made if instance == part] for part in range(3)
    ]
    known = [piece for part in parts for piece in spans(pieces, part)]
    assert spans(whole, known) == spans(whole, [window for part in parts for window in part])
    assert all(piece.end - piece.start < 2 * gap for piece in known)


def test_session_windows_that_touch_do_not_merge() -> None:
    groups = Sessions(10).merge([Window(20, 30), Window(0, 10), Window(5, 15), Window(15, 18)])
    assert [list(group) for group in groups] == [[(0, 10), (5, 15)], [(15, 18)], [(20, 30)]]


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


def test_a_result_is_in_the_window_that_it_names() -> None:
    row = {"window_start": 3, "window_end": 9, "opened": 4, "closed": 5}
    assert OfInput().window_of(row) == Window(3, 9)
    assert OfInput("opened", "closed").window_of(row) == Window(4, 5)
    with pytest.raises(ValueError, match="are in their records"):
        OfInput().assign(3)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (7, "a int has no fields"),
        ({"window_start": 3}, "the record has no field 'window_end'"),
        ({"window_start": 3, "window_end": 4.0}, "the record has window_end 4.0"),
        ({"window_start": True, "window_end": 4}, "the record has window_start True"),
        ({"window_start": 4, "window_end": 4}, "window_start 4 and window_end 4 are not a window"),
        ({"window_start": 4, "window_end": MAX_TIME + 1}, "are not a window"),
    ],
)
def test_a_record_without_the_bounds_of_a_window_says_what_it_has(value: Any, why: str) -> None:
    with pytest.raises(RecordError, match=why):
        OfInput().window_of(value)
