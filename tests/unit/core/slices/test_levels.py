"""Levels of slices lie in each other without a gap, also where local days are 23 or 25 hours
long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.times import LAST_TIME, MIN_TIME
from millwheel.core.slices.levels import default_levels, slice_levels

M, H, D = 60_000_000, 3_600_000_000, 86_400_000_000
ZONES = ["", "Europe/Paris", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo"]


@given(st.integers(0, 2_000_000_000_000_000), st.sampled_from(ZONES))
def test_a_slice_lies_in_one_slice_of_each_level_above_and_slices_follow_each_other(
    at: int, zone: str
) -> None:
    levels = slice_levels((15 * M, H, D, 7 * D), zone)
    inner = (at, at + 1)
    for level in levels:
        start, end = level.bounds(at)
        assert start <= inner[0] < inner[1] <= end
        assert level.bounds(start) == level.bounds(end - 1) == (start, end)
        assert level.bounds(end)[0] == end
        assert level.bounds(start - 1)[1] == start
        inner = (start, end)


def test_a_day_of_a_time_zone_begins_at_its_midnight() -> None:
    days = slice_levels((H, D), "Europe/Paris")[1]
    assert days.bounds(1_711_839_600_000_000) == (
        1_711_839_600_000_000,
        1_711_839_600_000_000 + 23 * H,
    )


def test_times_at_the_ends_of_time_have_slices_that_can_be_stored() -> None:
    (level,) = slice_levels((H,))
    assert level.bounds(MIN_TIME)[0] == MIN_TIME
    assert level.bounds(LAST_TIME)[1] <= 2**63 - 1


@pytest.mark.parametrize(
    ("sizes", "zone", "said"),
    [
        ((5 * M, 7 * M), "", "7m is not a multiple of the level 5m"),
        ((H, M), "", "write levels from short to long"),
        ((7 * H,), "Europe/Paris", "does not fit into local days"),
        ((H,), "Mars/Base", "unknown time zone"),
        (tuple(2**n for n in range(9)), "", "more than 8"),
    ],
)
def test_levels_that_do_not_fit_are_refused_with_the_fix(
    sizes: tuple[int, ...], zone: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        slice_levels(sizes, zone)


def test_levels_are_added_above_short_slices_as_far_as_they_are_kept() -> None:
    assert default_levels(5 * M, 30 * D) == (5 * M, H, D)
    assert default_levels(5 * M, 2 * H) == (5 * M, H)
    assert default_levels(7 * M, 30 * D) == (7 * M,)
    assert default_levels(D, 30 * D) == (D,)
