"""Clocks of time zones: what they skip and show twice."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.instants.local import (
    begins,
    months_start,
    offset_us,
    shown,
    wall_start,
    zone_of,
)
from millwheel.core.instants.numbers import datetime_us
from millwheel.core.instants.texts import text_us

ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo",
    "Asia/Kathmandu", "Africa/Monrovia", "UTC", "Pacific/Apia"
)  # fmt: skip
MINUTE = 60_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NEAR_CHANGES = st.builds(
    lambda text, seconds: text_us(text) + seconds * 1_000_000,
    st.sampled_from(
        ["2026-03-29T01:00Z", "2026-10-25T01:00Z", "2018-11-04T03:00Z", "2011-12-30T10:00Z",
         "2026-04-04T15:00Z", "2026-10-03T15:30Z", "1972-01-07T00:44:30Z"]
    ),
    st.integers(-90_000, 90_000),
)  # fmt: skip
TIMES = NEAR_CHANGES | st.integers(text_us("1900-01-01"), text_us("2100-01-01"))


def _naive(time_us: int, name: str) -> datetime:
    moment = (_EPOCH + timedelta(microseconds=time_us)).astimezone(ZoneInfo(name))
    return moment.replace(tzinfo=None, fold=0)


@given(TIMES, st.sampled_from(ZONES), st.sampled_from([15, 30, 60, 150, 180, 360, 720]))
def test_a_period_begins_where_clocks_first_show_it_up_to_a_time(
    time: int, name: str, minutes: int
) -> None:
    zone, length = zone_of(name), minutes * MINUTE
    start = wall_start(time, length, zone)
    assert start <= time
    wall = time + offset_us(time, zone)
    begin = wall - wall % length
    if start + offset_us(start, zone) != begin:  # skipped: the clocks jump over it
        assert start - 1 + offset_us(start - 1, zone) < begin < start + offset_us(start, zone)
    assert (
        offset_us(time, zone) == datetime_us(_naive(time, name).replace(tzinfo=timezone.utc)) - time
    )


@given(TIMES, st.sampled_from(ZONES), st.sampled_from([1, 3, 12]))
def test_months_begin_at_their_midnight_and_tile_time(time: int, name: str, months: int) -> None:
    zone = zone_of(name)
    start = months_start(time, months, zone)
    assert start <= time
    assert months_start(start, months, zone) == start
    assert months_start(start - 1, months, zone) < start
    shows = _naive(start, name)
    assert (shows.day, (shows.month - 1) % months) == (1, 0)


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("2026-03-29T02:30", "2026-03-29T01:30Z", "2026-03-29T00:30Z"),
        ("2026-10-25T02:30", "2026-10-25T00:30Z", "2026-10-25T01:30Z"),
        ("2026-06-01T02:30", "2026-06-01T00:30Z", "2026-06-01T00:30Z"),
    ],
)
def test_clocks_show_some_times_twice_and_skip_others(text: str, first: str, second: str) -> None:
    zone, wall = zone_of("Europe/Berlin"), text_us(text)
    assert (shown(wall, zone), shown(wall, zone, second=True)) == (text_us(first), text_us(second))


def test_what_is_skipped_begins_at_the_jump_and_what_is_shown_twice_at_the_first() -> None:
    zone, twice = zone_of("Europe/Berlin"), text_us("2026-10-25T02:00")
    assert begins(text_us("2026-03-29T02:30"), zone) == text_us("2026-03-29T01:00Z")
    assert begins(twice, zone) == text_us("2026-10-25T00:00Z")
    assert begins(twice, zone, text_us("2026-10-25T00:59Z")) == text_us("2026-10-25T00:00Z")
    assert begins(twice, zone, text_us("2026-10-25T01:00Z")) == text_us("2026-10-25T01:00Z")


@pytest.mark.parametrize(
    "name", ["Europe/Nowhere", "", "../etc/passwd", "a" * 5_000, "Europe", "a\0"]
)
def test_an_unknown_zone_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        zone_of(name)


@pytest.mark.parametrize("time", [2**62, -(2**62), 10**400], ids=["late", "early", "no float"])
def test_clocks_know_the_years_1_to_9999(time: int) -> None:
    for of in (offset_us, shown):
        with pytest.raises(ValueError, match="outside of the years 1 to 9999"):
            of(time, zone_of("Europe/Berlin"))
