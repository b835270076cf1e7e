"""Times: beside Python's datetimes, and what is refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.expressions.columns import term_over_columns
from millwheel.core.expressions.families.times import FUNCTIONS, time_of
from millwheel.core.expressions.language import compile_expression
from millwheel.core.expressions.terms import NoColumns
from millwheel.core.instants.texts import text_us
from millwheel.core.lazy_polars import dtype
from millwheel.core.windows.zones import Days

ACTS = {name: function.act for name, function in FUNCTIONS.items()}
ZONES = st.sampled_from(
    ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "America/Sao_Paulo"]
)
TIMES = st.integers(text_us("0002-01-01"), text_us("9998-12-31"))
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIELDS: dict[str, Any] = {
    "year": lambda at: at.year,
    "quarter": lambda at: (at.month - 1) // 3 + 1,
    "month": lambda at: at.month,
    "week": lambda at: at.isocalendar()[1],
    "day": lambda at: at.day,
    "day_of_year": lambda at: at.timetuple().tm_yday,
    "day_of_week": lambda at: at.isoweekday(),
    "hour": lambda at: at.hour,
    "minute": lambda at: at.minute,
    "second": lambda at: at.second,
    "millisecond": lambda at: at.microsecond // 1_000,
}


@given(TIMES, ZONES)
def test_fields_are_those_of_a_datetime(time: int, zone: str) -> None:
    moment = _EPOCH + timedelta(microseconds=time)
    for name, of in _FIELDS.items():
        assert ACTS[name](time) == of(moment)
        assert ACTS[name](time, zone) == of(moment.astimezone(ZoneInfo(zone)))


@given(TIMES, ZONES, st.sampled_from(["1d", "7d", "week"]))
def test_days_and_weeks_of_a_zone_begin_where_windows_do(time: int, zone: str, unit: str) -> None:
    days = Days(zone, 1 if unit == "1d" else 7, 4 * 86_400_000_000 if unit == "week" else 0)
    start = ACTS["trunc"](time, unit, zone)
    assert start == days.bounds(time)[0]
    if unit == "week":
        assert ACTS["day_of_week"](start, zone) == 1


@given(TIMES, st.sampled_from(["90s", "1h", "1d", "week", "month", "quarter", "year"]))
def test_periods_of_utc_are_those_of_the_zone_utc(time: int, unit: str) -> None:
    start = ACTS["trunc"](time, unit)
    assert start == ACTS["trunc"](time, unit, "UTC")
    assert start <= time
    assert ACTS["trunc"](start, unit) == start


def test_hours_of_an_autumn_night_are_told_apart() -> None:
    found = [
        ACTS["trunc"](text_us(text), "1h", "Europe/Berlin")
        for text in ("2026-10-25T00:30Z", "2026-10-25T01:30Z")
    ]
    assert found == [text_us("2026-10-25T00:00Z"), text_us("2026-10-25T01:00Z")]


@given(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62))
def test_a_difference_is_cut_towards_zero(start: int, end: int) -> None:
    assert ACTS["time_diff"](start, end, "1h") == -ACTS["time_diff"](end, start, "1h")
    assert abs(ACTS["time_diff"](start, end, "1h")) == abs(end - start) // 3_600_000_000


@given(TIMES, ZONES)
def test_what_a_format_says_is_read_again(time: int, zone: str) -> None:
    form = "%Y-%m-%d %H:%M:%S.%f %z"
    text = ACTS["date_format"](time, form, zone)
    if len(text.rpartition(" ")[2]) == 5:  # clocks of long ago were ahead by seconds, too
        assert ACTS["parse_time"](text, form, "Asia/Tokyo") == time
    assert ACTS["parse_time"](ACTS["date_format"](time, "%Y-%m-%dT%H:%M:%S.%f")) == time


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hour(t, 'Europe/Pariss')", r"column 9: hour\(\) does not take .* as zone: unknown time"),
        ("trunc(t, '1 fortnight')", "column 10: .* is not a duration; write"),
        ("trunc(t, '0s')", "not a duration such as 15m"),
        ("trunc(t, 'decade')", "'decade' is not a duration"),
        ("date_format(t, '%Q')", "%Q is not a code"),
        ("parse_time(t, '%j')", "%j cannot be read"),
        ("time_of(t, 'ns')", "a unit is one of s, ms, us"),
        ("year('12 May') == t", "neither a number nor ISO 8601 text"),
        ("time_diff(t, t, 'month')", "'month' is not a duration"),
    ],
)
def test_constants_that_are_no_times_zones_or_formats_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        compile_expression(text)


def test_a_time_is_a_whole_number_or_iso_text() -> None:
    assert time_of("1970-01-01T00:00:01Z") == time_of(1_000_000) == 1_000_000
    wrongs: tuple[Any, ...] = (None, 1.5, True, [])
    for wrong in wrongs:
        with pytest.raises(TypeError, match="needs a time"):
            time_of(wrong)
    assert ACTS["year"](2**62) == 148_108
    for name, given_ in (("year", (2**62, "UTC")), ("trunc", (2**62, "1d", "UTC"))):
        with pytest.raises(ValueError, match="outside of"):
            ACTS[name](*given_)


@pytest.mark.parametrize(
    "text", ["date_format(t, '%H', 'Asia/Tokyo')", "date_format(t, s)", "date_format(s, '%H')"]
)
def test_formats_with_a_zone_or_of_fields_have_no_column_form(text: str) -> None:
    with pytest.raises(NoColumns):
        term_over_columns(compile_expression(text).tree, {"t": "int", "s": "str"})


def _in_columns(text: str, kind: str, values: list[Any]) -> list[Any]:
    """What the column form gives, "by rows" where it knows nothing."""
    term = term_over_columns(compile_expression(text).tree, {"t": kind})
    frame = pl.DataFrame({"t": pl.Series(values, dtype=dtype(kind))})
    known = pl.all_horizontal(pl.lit(True), *term.exact)
    found = frame.select(known.alias("known"), term.column.alias("found"))
    return [value if sure else "by rows" for sure, value in found.rows()]


@given(st.lists(TIMES, min_size=1))
def test_iso_is_the_same_in_columns(times: list[int]) -> None:
    texts = [ACTS["iso"](time) for time in times]
    assert _in_columns("iso(t)", "int", times) == texts
    assert [ACTS["parse_time"](text) for text in texts] == times
    assert _in_columns("parse_time(t)", "str", texts) == times


def test_texts_of_other_forms_are_parsed_in_columns_one_by_one() -> None:
    assert _in_columns("parse_time(t)", "str", ["1970-01-01", "1970", "19700101T00"]) == [
        0,
        "by rows",
        0,
    ]
    text = "parse_time(t, '%d.%m.%Y %H', 'Europe/Paris')"
    assert _in_columns(text, "str", ["1.1.1970 1", "x"]) == [0, "by rows"]
    assert _in_columns("parse_time(t)", "str", []) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("t >= parse_time('1970-01-01T00:00:01Z')", True),
        ("t - parse_time('1970-01-01T00:00:01Z')", 4_000_000),
        ("t + duration('15m')", 905_000_000),
        ("t - duration('1s') > duration('4s')", False),
        ("-duration('1s') + t", 4_000_000),
    ],
)
def test_constant_times_and_durations_stay_in_columns(text: str, value: Any) -> None:
    assert _in_columns(text, "int", [5_000_000]) == [value]
    assert compile_expression(text).evaluate({"t": 5_000_000}) == value


def test_constants_that_columns_do_not_hold_go_by_rows() -> None:
    with pytest.raises(NoColumns):
        term_over_columns(compile_expression("t > parse_time('9999-01-01')").tree, {"t": "int"})
    with pytest.raises(ValueError, match="fails for every record"):
        compile_expression("t > parse_time('May')")


def test_iso_with_a_zone_goes_by_rows() -> None:
    with pytest.raises(NoColumns):
        term_over_columns(compile_expression("iso(t, 'Asia/Tokyo')").tree, {"t": "int"})
    assert ACTS["iso"](0, "America/Caracas") == "1969-12-31T20:00:00-04:00"
