from __future__ import annotations

import pytest

from millwheel.connect.connectors.postgres.writing.times import without_zone


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-01-01T00:30:00+02:00", "2025-12-31T22:30:00"),
        ("2026-01-01 00:30-0530", "2026-01-01T06:00:00"),
        ("2026-01-01t00:30:00.123456789 +01", "2025-12-31T23:30:00.123456789"),
        ("2026-01-01T003000,5z", "2026-01-01T00:30:00.5"),
        ("1890-01-01T00:00:00+00:53:28", "1889-12-31T23:06:32"),
        (" 2024-02-28T24:00:00Z ", "2024-02-29T00:00:00"),
    ],
)
def test_a_time_with_an_offset_is_the_same_time_in_utc(text: str, utc: str) -> None:
    assert without_zone(text, "timestamp") == utc


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T00:30:00",
        "2026-01-01",
        "10:30:00",
        "10:30 PM",
        "10:30 utc",
        "0044-03-15 12:00 BC",
        "now",
        "",
    ],
)
def test_a_text_without_an_offset_stays_as_it_is(text: str) -> None:
    assert without_zone(text, "timestamp") == text


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("10:30+02", "'\\+02'"),
        ("1 Jan 2026 10:30 Europe/Berlin", "'Europe/Berlin'"),
        ("2026-01-01 10:30 CET", "'CET'"),
    ],
)
def test_an_offset_in_a_form_that_would_be_lost_is_refused(text: str, zone: str) -> None:
    with pytest.raises(ValueError, match=f"its offset {zone} would be lost"):
        without_zone(text, "timestamp")


def test_a_time_in_a_year_that_python_does_not_have_is_an_overflow() -> None:
    with pytest.raises(OverflowError):
        without_zone("0001-01-01T00:00:00+02:00", "timestamp")
