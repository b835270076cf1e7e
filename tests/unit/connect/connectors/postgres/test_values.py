from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from millwheel.connect.connectors.postgres.table import TableColumn
from millwheel.connect.connectors.postgres.values import text_of, without_zone
from millwheel.errors import RecordError


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


def column(base: str, category: str = "", letters: int = 0) -> TableColumn:
    return TableColumn("c", base, category, base, False, False, True, letters)


@pytest.mark.parametrize(
    ("base", "value", "text"),
    [
        ("int8", 3.0, "3"),
        ("int8", 3.5, "3.5"),
        ("int8", True, "true"),
        ("float8", float("inf"), "inf"),
        ("numeric", Decimal("1.10"), "1.10"),
        ("timestamptz", 0, "1970-01-01T00:00:00+00:00"),
        ("timestamptz", -1, "1969-12-31T23:59:59.999999+00:00"),
        ("timestamptz", "now", "now"),
        ("date", dt.date(2026, 1, 2), "2026-01-02"),
        ("int8", 0, "0"),
        ("jsonb", "text", '"text"'),
        ("jsonb", {"a": [1]}, '{"a":[1]}'),
        ("text", {"a": 1}, '{"a":1}'),
        ("text", b"caf\xc3\xa9", "café"),
        ("bytea", b"\x01", "\\x01"),
        ("jsonb", None, None),
    ],
)
def test_a_value_is_the_text_that_the_server_parses(
    base: str, value: Any, text: str | None
) -> None:
    assert text_of(value, column(base)) == text


def test_elements_of_arrays_are_quoted() -> None:
    assert text_of(['a"b', None, "\\", ""], column("_text", "A")) == '{"a\\"b",NULL,"\\\\",""}'
    assert text_of([[0], [1]], column("_timestamptz", "A")).count("1970") == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("base", "value"), [("text", "a\0"), ("timestamptz", 1 << 62), ("text", b"\xff")]
)
def test_what_has_no_text_is_a_sentence(base: str, value: Any) -> None:
    with pytest.raises(RecordError, match=r"column c"):
        text_of(value, column(base))


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("abcd", column("varchar", letters=3, category="S"), "value too long for type"),
        ("ab  ", column("varchar", letters=3, category="S"), "value too long for type"),
        ("abcd", column("bpchar", letters=3, category="S"), "value too long for type"),
        (2**53 + 1, column("float8"), "no such whole number"),
        (2**24 + 1, column("float4"), "no such whole number"),
        ("2026-01-01 00:00 CET", column("timestamp"), "offset 'CET' would be lost"),
        ("10:00+02", column("time"), r"offset '\+02' would be lost"),
    ],
)
def test_what_a_column_would_cut_is_no_value_of_it(
    value: Any, kind: TableColumn, words: str
) -> None:
    with pytest.raises(RecordError, match=words):
        text_of(value, kind)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("ab  ", column("bpchar", letters=3, category="S"), "ab  "),
        (1.005, column("numeric"), "1.005"),
        ("1.5000", column("numeric"), "1.5000"),
        (2**60, column("float8"), str(2**60)),
        ("2026-01-01T00:00:00+02:00", column("timestamp"), "2025-12-31T22:00:00"),
        (
            "2026-01-01T00:00:00.123456789-05:30",
            column("timestamp"),
            "2026-01-01T05:30:00.123456789",
        ),
        ("2026-01-01T00:00:00+02:00", column("date"), "2025-12-31T22:00:00"),
        ("2026-01-01T00:00:00Z", column("timestamp"), "2026-01-01T00:00:00"),
        ("2026-01-01T00:00:00+02:00", column("timestamptz"), "2026-01-01T00:00:00+02:00"),
        ("2026-01-01 10:00 PM", column("timestamp"), "2026-01-01 10:00 PM"),
        ("2016-12-31T23:59:60Z", column("timestamp"), "2017-01-01T00:00:00"),
    ],
)
def test_what_a_column_holds_is_written_exactly(value: Any, kind: TableColumn, text: str) -> None:
    assert text_of(value, kind) == text
