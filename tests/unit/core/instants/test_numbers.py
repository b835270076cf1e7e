from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from millwheel.core.instants.numbers import (
    LIMIT_US,
    NO_UNIT,
    day_text,
    digits_us,
    lacks_unit,
    may_lack_unit,
    number_us,
    scaled_us,
)
from millwheel.errors import RecordError

NEW_YEAR = 1_767_225_600_000_000  # 2026-01-01


@pytest.mark.parametrize(
    ("number", "unit_us", "us"),
    [
        (0, 1_000_000, 0),
        (-1, 1_000, -1_000),
        (1_767_225_600, 1_000_000, NEW_YEAR),
        (1_767_225_600.123456, 1_000_000, NEW_YEAR + 123_456),
        (7_273_802_096.123457, 1_000_000, 7_273_802_096_123_457),
        (Decimal("1767225600.1234567"), 1_000_000, NEW_YEAR + 123_457),
        (1e15, 1, 10**15),
        (LIMIT_US - 1, 1, LIMIT_US - 1),
    ],
)
def test_a_number_counts_in_its_unit(number: Any, unit_us: int, us: int) -> None:
    assert number_us(number, unit_us) == us
    assert digits_us(f" {number} ", unit_us) == us


@pytest.mark.parametrize(
    "number",
    [
        LIMIT_US,
        -LIMIT_US,
        10**400,
        1e300,
        *map(float, ("inf", "-inf", "nan")),
        Decimal("NaN"),
        Decimal("1e999999"),
    ],
)
def test_no_number_wraps(number: Any) -> None:
    with pytest.raises(RecordError):
        number_us(number, 1)
    with pytest.raises(RecordError):
        number_us(number, 1_000_000)


def test_only_a_text_of_digits_is_a_number() -> None:
    assert digits_us("2026-01-01", 1) is None
    assert digits_us("1_000", 1) is None
    assert digits_us("0x10", 1) is None
    assert digits_us("nan", 1) is None
    assert digits_us("", 1) is None
    assert digits_us("-1.5e3", 1_000) == -1_500_000


def test_only_seconds_and_milliseconds_of_1990_to_2100_look_like_another_unit() -> None:
    units = {number: lacks_unit(number) for number in (631_152_000, 1_767_225_600.5, 4_102_444_800)}
    assert set(units.values()) == {"s"}
    assert {
        lacks_unit(number) for number in (631_152_000_000, 1_767_225_600_000, 4_102_444_800_000)
    } == {"ms"}
    others = (
        0,
        1,
        631_151_999,
        4_102_444_801,
        631_151_999_999,
        4_102_444_800_001,
        NEW_YEAR,
        -1_767_225_600,
    )
    assert {lacks_unit(number) for number in others} == {""}
    assert not any(may_lack_unit(number, number) for number in others)
    assert may_lack_unit(0, NEW_YEAR)
    assert may_lack_unit(1_767_225_600, 1_767_225_600)
    assert not may_lack_unit(5_000_000_000, 600_000_000_000)
    assert NO_UNIT


def test_typed_times_are_rounded_down_and_never_wrap() -> None:
    assert [scaled_us(number, 1, 1_000) for number in (-1, -1_000, 1_999)] == [-1, -1, 1]
    assert scaled_us(-(2**63), 1) == -(2**63)
    for number, times in ((2**63, 1), (2**62, 1_000), (-(2**62), 1_000_000)):
        with pytest.raises(RecordError, match="outside the supported range"):
            scaled_us(number, times)


def test_dates_have_texts_from_year_1_to_9999() -> None:
    assert [day_text(days) for days in (-719_162, 0, 2_932_896)] == [
        "0001-01-01",
        "1970-01-01",
        "9999-12-31",
    ]
    for days in (-719_163, 2_932_897, 2**31 - 1, -(2**31)):
        with pytest.raises(RecordError, match="years 1 to 9999"):
            day_text(days)
