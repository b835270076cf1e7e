"""Days as the clock of a time zone has them."""

from __future__ import annotations

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.windows.windows import (
    Tumbling,
)
from millwheel.core.windows.zones import Days
from millwheel.errors import RecordError

HOUR = 3_600_000_000


DAY = 24 * HOUR


def _utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("zone", "instant", "start", "hours"),
    [
        ("Europe/Berlin", "2024-03-31T12:00", "2024-03-30T23:00", 23),
        ("Europe/Berlin", "2024-10-27T00:59", "2024-10-26T22:00", 25),
        ("Europe/Berlin", "2024-10-27T01:01", "2024-10-26T22:00", 25),
        ("America/New_York", "2024-11-03T05:59", "2024-11-03T04:00", 25),
        # The clock goes from 24:00 to 23:00, and from 24:00 to 01:00: the day begins where the
        # clock jumps.
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
def test_days_in_a_time_zone_are_as_long_as_its_clock_says(
    zone: str, instant: str, start: str, hours: int
) -> None:
    window = Tumbling("1d", time_zone=zone).window(_utc(instant))
    assert window == (_utc(start), _utc(start) + hours * HOUR)


@given(
    timestamp=st.integers(_utc("1971-01-01T00:00"), _utc("2037-01-01T00:00")),
    zone=st.sampled_from(
        [
            "Europe/Berlin",
            "America/Sao_Paulo",
            "America/Havana",
            "Pacific/Apia",
            "Australia/Lord_Howe",
        ]
    ),
    count=st.integers(1, 7),
    offset=st.sampled_from([0, 6 * HOUR, -HOUR]),
)
def test_days_follow_each_other_without_gap_or_overlap(
    timestamp: int, zone: str, count: int, offset: int
) -> None:
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
