"""The calendar, beside Python's, and over arrays."""

from __future__ import annotations

from datetime import date

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.instants.calendar import (
    civil,
    day_of_week,
    day_of_year,
    days_in,
    days_of,
    iso_week,
    month_start,
)
from millwheel.core.instants.numbers import EPOCH_DAY, FIRST_DAY, LAST_DAY

DAYS = st.integers(FIRST_DAY, LAST_DAY - 7)
ALL = st.integers(-(2**63) // 86_400_000_000, 2**63 // 86_400_000_000)


@given(DAYS)
def test_the_calendar_is_that_of_python(days: int) -> None:
    known = date.fromordinal(days + EPOCH_DAY)
    assert civil(days) == (known.year, known.month, known.day)
    assert (iso_week(days)[0], iso_week(days)[1], day_of_week(days)) == known.isocalendar()
    assert day_of_year(days) == known.timetuple().tm_yday
    for months in (1, 3, 12):
        month = (known.month - 1) // months * months + 1
        assert month_start(days, months) == date(known.year, month, 1).toordinal() - EPOCH_DAY


@given(ALL)
def test_each_day_has_one_date_in_all_years(days: int) -> None:
    assert days_of(*civil(days)) == days
    assert civil(days + 146_097) == (civil(days)[0] + 400, *civil(days)[1:])


@given(st.lists(ALL, min_size=1, max_size=5))
def test_arrays_have_the_values_of_numbers(days: list[int]) -> None:
    array = np.array(days)
    for of in (civil, iso_week, day_of_week, day_of_year, lambda day: month_start(day, 3)):
        found = np.array(of(array)).T.tolist()
        assert found == np.array([of(each) for each in days]).tolist()


def test_a_day_begins_at_midnight() -> None:
    assert [days_in(each) for each in (-1, 0, 86_399_999_999, 86_400_000_000)] == [-1, 0, 0, 1]
