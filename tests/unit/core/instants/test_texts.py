"""The catalogue of times as people write them. Every reader of times is held against it."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest

from millwheel.core.instants.numbers import (
    date_us,
    datetime_us,
)
from millwheel.core.instants.texts import has_offset, iso_text, text_day, text_us
from millwheel.errors import RecordError

NEW_YEAR = 1_767_225_600_000_000  # 2026-01-01
HOUR = 3_600_000_000
TEXTS = {
    "2026-01-01": NEW_YEAR,
    "2026-01-01T00": NEW_YEAR,
    "2026-01-01T00:00": NEW_YEAR,
    "2026-01-01T00:00:00": NEW_YEAR,
    "2026-01-01 00:00:00": NEW_YEAR,
    "2026-01-01T00:00:00Z": NEW_YEAR,
    "2026-01-01t00:00:00z": NEW_YEAR,
    " 2026-01-01T00:00:00Z ": NEW_YEAR,
    "2026-01-01T00:00:00 Z": NEW_YEAR,
    "20260101T000000Z": NEW_YEAR,
    "20260101T0000": NEW_YEAR,
    "2026-01-01T01:00:00+01:00": NEW_YEAR,
    "2026-01-01T01:00:00+0100": NEW_YEAR,
    "2026-01-01T01:00:00+01": NEW_YEAR,
    "2026-01-01 01:00:00 +0100": NEW_YEAR,
    "2025-12-31T19:30:00-04:30": NEW_YEAR,
    "2025-12-31T19:30-0430": NEW_YEAR,
    "2026-01-01T00:00:15+00:00:15": NEW_YEAR,
    "2026-01-01T00:00:00-00:00": NEW_YEAR,
    "2026-01-01T00:00:00.5Z": NEW_YEAR + 500_000,
    "2026-01-01T00:00:00.12": NEW_YEAR + 120_000,
    "2026-01-01T00:00:00,123": NEW_YEAR + 123_000,
    "2026-01-01T00:00:00.1234Z": NEW_YEAR + 123_400,
    "2026-01-01T00:00:00.12345+00:00": NEW_YEAR + 123_450,
    "2026-01-01T00:00:00.123456Z": NEW_YEAR + 123_456,
    "2026-01-01T00:00:00.1234567Z": NEW_YEAR + 123_456,
    "2026-01-01T00:00:00.12345678Z": NEW_YEAR + 123_456,
    "2026-01-01T01:00:00.123456789+0100": NEW_YEAR + 123_456,
    "2026-01-01T00:00:00.000000999999999999Z": NEW_YEAR,
    "2025-12-31T23:59:60Z": NEW_YEAR,
    "2025-12-31T23:59:60.25Z": NEW_YEAR + 250_000,
    "2026-01-01T00:59:60+01:00": NEW_YEAR,
    "2025-12-31T24:00:00Z": NEW_YEAR,
    "2025-12-31T24:00": NEW_YEAR,
    "2025-12-31T24:00:00.000Z": NEW_YEAR,
    "1969-12-31T23:59:59.999999Z": -1,
    "0001-01-01T00:00:00Z": -62_135_596_800_000_000,
    "0001-01-01T00:00:00+01:00": -62_135_596_800_000_000 - HOUR,
    "9999-12-31T23:59:59.999999Z": 253_402_300_799_999_999,
    "9999-12-31T23:59:59.999999-01:00": 253_402_300_799_999_999 + HOUR,
    "9999-12-31T23:59:60Z": 253_402_300_800_000_000,
    "2200-07-01T12:34:56.123457Z": 7_273_802_096_123_457,
}
NOT_TEXTS = {
    "": "neither a number nor ISO 8601",
    "yesterday": "neither a number nor ISO 8601",
    "2026-1-1": "neither a number nor ISO 8601",
    "2026-0101": "neither a number nor ISO 8601",
    "2026-01-01T00:0000": "neither a number nor ISO 8601",
    "2026-01-01T00:00:00.": "neither a number nor ISO 8601",
    "2026-01-01T00:00.5": "neither a number nor ISO 8601",
    "2026-01-01T00:00:00+1": "neither a number nor ISO 8601",
    "2026-01-01T00:00:00 UTC": "neither a number nor ISO 8601",
    "2026-01-01T00:00:00+01:00[Europe/Paris]": "neither a number nor ISO 8601",
    "٢٠٢٦-٠١-٠١": "neither a number nor ISO 8601",
    "2026-01-01T00:00:00Z\0": "neither a number nor ISO 8601",
    "2026-02-30": "no such day",
    "2025-02-29T00:00:00Z": "no such day",
    "0000-01-01": "no such day",
    "2026-13-01": "no such day",
    "2026-01-01T25:00:00Z": "no such time",
    "2026-01-01T24:00:00.5Z": "no such time",
    "2026-01-01T24:00:01Z": "no such time",
    "2026-01-01T00:60:00Z": "no such time",
    "2026-01-01T00:00:61Z": "no such time",
    "2026-01-01T00:00:00+24:00": "no such offset",
    "2026-01-01T00:00:00+01:60": "no such offset",
    "2026-W01-4": "week date",
    "2026W01": "week date",
    "2026-001": "week date or a day of a year",
    "10000-01-01": "years 1 to 9999",
    "-0001-01-01": "years 1 to 9999",
    "+002026-01-01": "years 1 to 9999",
    "20260101": "text of digits",
    "1712011212345": "text of digits",
    "202601011212": "text of digits",
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_one_time_whatever_python_and_zone(text: str) -> None:
    assert text_us(text) == TEXTS[text]


@pytest.mark.parametrize("text", NOT_TEXTS)
def test_a_text_that_is_no_time_is_refused_by_a_sentence(text: str) -> None:
    with pytest.raises(RecordError, match=NOT_TEXTS[text]):
        text_us(text)


def test_texts_agree_with_datetimes_of_every_century() -> None:
    for year in range(1, 10_000, 37):
        moment = datetime(
            year, 3, 1, 23, 59, 58, 999_999, timezone(timedelta(hours=-5, minutes=-30))
        )
        assert text_us(moment.isoformat()) == datetime_us(moment)
        assert text_us(moment.isoformat(sep=" ")) == datetime_us(moment)
        assert (
            text_us(moment.date().isoformat())
            == date_us(moment.date())
            == text_day(str(moment.date())) * 24 * HOUR
        )


def test_a_naive_datetime_is_utc() -> None:
    assert datetime_us(datetime(2026, 1, 1)) == NEW_YEAR == date_us(date(2026, 1, 1))


@pytest.mark.parametrize("text", TEXTS)
def test_which_texts_say_their_offset(text: str) -> None:
    plain = text.strip().upper()
    tail = plain[11:] if "-" in plain[:10] else plain[9:]
    assert has_offset(text) == (tail.endswith("Z") or "+" in tail or "-" in tail)


@pytest.mark.parametrize(
    ("time_us", "offset_us", "text"),
    [
        (NEW_YEAR, 0, "2026-01-01T00:00:00Z"),
        (NEW_YEAR + 500_000, 0, "2026-01-01T00:00:00.500000Z"),
        (-1, 0, "1969-12-31T23:59:59.999999Z"),
        (NEW_YEAR, HOUR, "2026-01-01T01:00:00+01:00"),
        (NEW_YEAR, -HOUR // 2, "2025-12-31T23:30:00-00:30"),
    ],
)
def test_iso_text_is_read_again(time_us: int, offset_us: int, text: str) -> None:
    assert iso_text(time_us, offset_us) == text
    assert text_us(text) == time_us
