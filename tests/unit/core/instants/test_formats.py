"""Formats of times, beside those of Python."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.instants.formats import (
    checked,
    checked_to_parse,
    formatted,
    parsed,
    resolution_us,
)
from millwheel.core.instants.numbers import datetime_us

MOMENTS = st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31))
CODES = "YymdBbAajuGVHIpMSfz%"


@given(MOMENTS, st.sampled_from(CODES), st.integers(-1_439, 1_439))
def test_codes_are_those_of_python(moment: datetime, code: str, minutes: int) -> None:
    offset = timedelta(minutes=minutes)
    known = moment.replace(tzinfo=timezone(offset)).strftime(f"a%{code}b")
    assert formatted(datetime_us(moment), minutes * 60_000_000, f"a%{code}b") == known


@given(MOMENTS, st.text(st.sampled_from(CODES), min_size=1, max_size=3))
def test_times_of_one_step_have_one_text(moment: datetime, codes: str) -> None:
    form = "".join(f"%{code}" for code in codes)
    wall, step = datetime_us(moment), resolution_us(form)
    for other in (wall - wall % step, wall - wall % step + step - 1):
        assert formatted(other, 0, form) == formatted(wall, 0, form)


@given(
    MOMENTS,
    st.sampled_from(
        [
            "%Y-%m-%dT%H:%M:%S.%f",
            "%Y%m%d%H%M%S%f",
            "%d %B %Y, %I:%M:%S.%f %p",
            "%a %b %d %Y %H.%M%%%S,%f",
        ]
    ),
)
def test_what_is_written_is_read(moment: datetime, form: str) -> None:
    wall = datetime_us(moment)
    assert parsed(formatted(wall, 0, form), form) == (wall, None)


@pytest.mark.parametrize(
    ("text", "offset"), [("+0530", 19_800), ("-02:00", -7_200), ("Z", 0), ("z", 0)]
)
def test_an_offset_is_read(text: str, offset: int) -> None:
    assert parsed(f"1 {text}", "%d %z") == (0, offset * 1_000_000)


@pytest.mark.parametrize(
    ("text", "form", "sentence"),
    [
        ("2026-02-29", "%Y-%m-%d", "no such day"),
        ("2026-13-01", "%Y-%m-%d", "no such day"),
        ("24:00", "%H:%M", "no such time of a day"),
        ("13 PM", "%I %p", "no such time of a day"),
        ("26-01-01", "%Y-%m-%d", "at position 0 digits are missing"),
        ("2026-01-01 ", "%Y-%m-%d", "at position 10 something follows"),
        ("2026/01/01", "%Y-%m-%d", "at position 4 '-' is missing"),
        ("Foo", "%b", "at position 0 none of Jan"),
        ("+99:00", "%z", "no such offset"),
        ("\u0661", "%d", "digits are missing"),
    ],
)
def test_a_text_that_does_not_fit_is_an_error_with_its_position(
    text: str, form: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        parsed(text, form)


def test_codes_that_are_none_are_refused() -> None:
    for form in ("%Q", "%", "%-d"):
        with pytest.raises(ValueError, match="is not a code of a format; there are %Y %y"):
            checked(form)
    with pytest.raises(ValueError, match="%j cannot be read"):
        checked_to_parse("%Y-%j")
    with pytest.raises(ValueError, match="up to 200 characters"):
        checked("a" * 201)


def test_years_of_any_length_are_written() -> None:
    assert formatted(2**62, 0, "%Y-%m-%d") == "148108-07-06"
    assert formatted(-(2**62), 0, "%Y") == "-144169"
