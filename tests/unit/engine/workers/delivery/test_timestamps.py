from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from millwheel.core.instants.numbers import LIMIT_US, NO_UNIT, datetime_us
from millwheel.core.model.times import BEGINNING
from millwheel.core.pipeline.spec import StreamSpec
from millwheel.engine.workers.delivery.timestamps import Timestamps, column_of, field_of

NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
NOON_US = 1_704_110_400_000_000


def read(*values: Any, unit_us: int = 1, function: Any = None) -> tuple[list[int], dict[int, str]]:
    spec = StreamSpec("s", timestamp="ts", timestamp_unit_us=unit_us)
    return Timestamps(spec, function).of(list(values))


def one(given: Any, unit_us: int = 1) -> int:
    [stamp], problems = read({"ts": given}, unit_us=unit_us)
    assert not problems
    return stamp


def test_whole_numbers_are_taken_in_their_unit() -> None:
    assert read({"ts": 1}, {"ts": -2}) == ([1, -2], {})
    assert read({"ts": 1}, {"ts": 2}, unit_us=1000) == ([1000, 2000], {})
    assert read() == ([], {})


def test_rows_of_a_table_without_times_have_always_been_there() -> None:
    timestamps = Timestamps(StreamSpec("s"), None)
    assert timestamps.of([{"ts": 5}, {}]) == ([BEGINNING] * 2, {})
    assert datetime_us(datetime.min.replace(tzinfo=timezone.utc)) == BEGINNING


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-01T12:00:00Z",
        "2024-01-01 12:00:00",
        "2024-01-01T12:00:00+00:00",
        "2024-01-01T13:00:00+01:00",
        "2024-01-01T12:00:00.000000",
    ],
)
def test_text_is_iso_8601_and_utc_unless_it_says_otherwise(text: str) -> None:
    assert one(text) == NOON_US


def test_microseconds_of_text_and_datetimes_are_exact() -> None:
    assert one("2024-01-01T12:00:00.000001Z") == NOON_US + 1
    assert one(NOON + timedelta(microseconds=7)) == NOON_US + 7
    assert one(NOON.replace(tzinfo=None)) == NOON_US
    assert one(NOON.astimezone(timezone(timedelta(hours=5)))) == NOON_US
    late = datetime(2200, 1, 1, 0, 0, 0, 123457, tzinfo=timezone.utc)
    assert one(late) % 1_000_000 == 123457


def test_fractions_of_a_unit_are_rounded_to_microseconds() -> None:
    assert one(1.5, unit_us=1_000_000) == 1_500_000
    assert one(1.0000004, unit_us=1_000_000) == 1_000_000


@pytest.mark.parametrize(
    "bad",
    [None, "yesterday", "", True, [], {}, float("nan"), float("inf"), LIMIT_US, -LIMIT_US, 10**30],
)
def test_one_bad_timestamp_leaves_the_others_alone(bad: Any) -> None:
    stamps, problems = read({"ts": 1}, {"ts": bad}, {"ts": 3})
    assert stamps == [1, 0, 3]
    assert list(problems) == [1]


def test_a_missing_field_is_named() -> None:
    _, problems = read({"ts": 1}, {"time": 2})
    assert "'ts'" in problems[1]


def test_a_number_in_the_wrong_unit_is_told_to_check_it() -> None:
    _, problems = read({"ts": NOON_US}, unit_us=1_000_000)
    assert "check the unit" in problems[0]


def test_a_function_says_the_timestamp_in_any_form() -> None:
    stamps, problems = read("2024-01-01T12:00:00Z", 5, NOON, function=lambda value: value)
    assert stamps == [NOON_US, 5, NOON_US]
    assert not problems


def test_a_function_that_raises_concerns_one_record() -> None:
    stamps, problems = read(5, 0, 2, function=lambda value: 10 // value)
    assert stamps == [2, 0, 5]
    assert "ZeroDivisionError" in problems[1]


def test_what_a_function_returns_is_checked_too() -> None:
    _, problems = read(1, function=lambda value: object())
    assert "neither a number nor ISO 8601" in problems[0]


def test_fields_of_dicts_and_of_objects_are_read_alike() -> None:
    row, thing = {"a": 1}, SimpleNamespace(a=2)
    assert [field_of(value, "a") for value in (row, thing, 7)] == [1, 2, None]
    assert column_of([row, {"a": 3}], "a") == [1, 3]
    assert column_of([row, thing, {}], "a") == [1, 2, None]
    assert read({"ts": 1}, SimpleNamespace(ts=2)) == ([1, 2], {})


def unitless(
    *values: Any, unit_us: int = 1, states_unit: bool = False
) -> tuple[list[int], dict[int, str]]:
    spec = StreamSpec("s", timestamp="ts", timestamp_unit_us=unit_us)
    return Timestamps(spec, None, states_unit).of([{"ts": value} for value in values])


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(
    ("number", "unit"),
    [(1_767_225_600, "s"), (1_767_225_600_123, "ms"), (1_767_225_600.5, "s"), (631_152_000, "s")],
)
def test_a_number_of_another_unit_is_no_time_of_1970(count: int, number: Any, unit: str) -> None:
    few = [5] * count
    stamps, problems = unitless(*few, number, NOON_US)
    assert (stamps[-1], list(problems)) == (NOON_US, [count])
    assert problems[count].startswith(NO_UNIT)
    assert f"write timestamp: {{field: ts, unit: {unit}}}" in problems[count]
    assert unitless(number, states_unit=True) == ([round(number)], {})


def test_digits_are_a_number_where_a_unit_is_stated_and_never_a_date() -> None:
    for text in ("1712011212345", "1748052062353", "20260101", "-5", "1.5"):
        stamps, problems = unitless(text, unit_us=1_000, states_unit=True)
        assert (stamps, problems) == ([round(float(text) * 1_000)], {})
        _, problems = unitless(text)
        assert problems[0].startswith(NO_UNIT)


def test_dates_and_decimals_are_times() -> None:
    assert one(date(2024, 1, 1)) == NOON_US - 12 * 3_600_000_000
    assert one(Decimal("1.5"), unit_us=1_000) == 1_500
