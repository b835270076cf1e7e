"""How the values of a field that is declared as ``timestamp`` are read."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.instants.time_forms import TimeForm, form_of, is_time
from millwheel.errors import RecordError

NEW_YEAR = 1_767_225_600_000_000  # 2026-01-01
HOUR = 3_600_000_000
FORMS = {
    "plain": TimeForm(),
    "ms": TimeForm("ms"),
    "Berlin": TimeForm(zone="Europe/Berlin"),
    "own": TimeForm(zone="Europe/Berlin", format="%d.%m.%Y %H:%M"),
    "offset": TimeForm(format="%d.%m.%Y %H:%M %z"),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_form_is_one_text(form: TimeForm) -> None:
    assert form_of(form.kind) == form
    assert is_time(form.kind)
    form.check()


def test_the_plain_form_is_one_word() -> None:
    assert TimeForm().kind == "timestamp"
    assert not is_time("int")


@pytest.mark.parametrize(
    ("form", "value", "time_us"),
    [
        ("plain", "2026-01-01T01:00:00+01:00", NEW_YEAR),
        ("plain", "2026-01-01", NEW_YEAR),
        ("plain", NEW_YEAR, NEW_YEAR),
        ("plain", 5, 5),
        ("plain", 1.5, 2),
        ("plain", Decimal(7), 7),
        ("plain", datetime(2026, 1, 1, tzinfo=timezone.utc), NEW_YEAR),
        ("plain", date(2026, 1, 1), NEW_YEAR),
        ("ms", 1_767_225_600_000, NEW_YEAR),
        ("ms", 1_767_225_600_000.5, NEW_YEAR + 500),
        ("ms", "1767225600000", NEW_YEAR),
        ("ms", "2026-01-01", NEW_YEAR),
        ("Berlin", "2026-01-01T01:00", NEW_YEAR),
        ("Berlin", "2026-01-01", NEW_YEAR - HOUR),
        ("Berlin", "2026-01-01T00:00:00Z", NEW_YEAR),
        ("Berlin", "2026-01-01T00:00:00-01:00 ", NEW_YEAR + HOUR),
        ("Berlin", "20260101T010000.5", NEW_YEAR + 500_000),
        ("Berlin", "2026-01-01T01", NEW_YEAR),
        ("own", "01.01.2026 01:00", NEW_YEAR),
        ("own", "1.1.2026 1:00", NEW_YEAR),
        ("offset", "01.01.2026 01:00 +0100", NEW_YEAR),
    ],
)
def test_a_time_is_read(form: str, value: Any, time_us: int) -> None:
    assert FORMS[form].inside(value) == time_us


@pytest.mark.parametrize(
    ("form", "value", "sentence"),
    [
        ("plain", "yesterday", "neither a number nor ISO 8601 text; other texts need a format"),
        ("plain", "1767225600", "a text of digits; say in which unit: declare it as {type: timest"),
        ("plain", 1_767_225_600, "as µs it lies in 1970, as s it does not: declare it as {type: t"),
        ("plain", True, "it is bool True, and a timestamp is a number or a text"),
        ("plain", [1], "it is list [1], and a timestamp is a number or a text"),
        ("plain", float("nan"), "is not a time"),
        *(("plain", Decimal(odd), "outside") for odd in ("NaN", "sNaN", "Infinity", "1e999999")),
        ("ms", 2**62, "outside the supported range"),
        ("own", "2026-01-01", "it is declared with the format '%d.%m.%Y %H:%M'"),
        ("own", 5, "it is int 5, and not a text as '%d.%m.%Y %H:%M' says"),
        ("Berlin", "0001-01-01", "years 1 to 9999"),
    ],
)
def test_what_is_no_time_says_what_to_declare(form: str, value: Any, sentence: str) -> None:
    with pytest.raises(RecordError) as caught:
        FORMS[form].inside(value)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("plain", [NEW_YEAR, NEW_YEAR + 5]),
        ("plain", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]),
        ("ms", [1, 2]),
        ("ms", ["2026-01-01T00:00:00Z"]),
        ("own", ["01.01.2026 01:00", "29.3.2026 2:30"]),
        ("plain", []),
    ],
)
def test_a_column_is_what_its_values_are(form: str, values: list[Any]) -> None:
    found = FORMS[form].column(values)
    if values:
        assert found is not None
        assert found.tolist() == [FORMS[form].inside(value) for value in values]


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("plain", [NEW_YEAR, 1_767_225_600]),
        ("plain", [NEW_YEAR, "2026-01-01"]),
        ("plain", [2**70]),
        ("plain", [1.5]),
        ("ms", [2**62]),
        ("Berlin", ["2026-01-01T00:00:00", "2026-01-01T00:00:00Z"]),
        ("Berlin", ["0001-01-01T00:00:00"]),
        ("own", ["01.01.2026 01:00", "yesterday"]),
        ("own", [5]),
        ("plain", ["yesterday"]),
    ],
)
def test_some_columns_are_looked_at_value_by_value(form: str, values: list[Any]) -> None:
    assert FORMS[form].column(values) is None


def test_numbers_that_are_times_are_left_alone() -> None:
    numbers = np.array([NEW_YEAR, NEW_YEAR + 5])
    assert FORMS["plain"].numbers(numbers) is numbers
    assert FORMS["own"].numbers(numbers) is None


def test_texts_of_files_without_types_may_be_numbers() -> None:
    assert FORMS["plain"].inside_of_text(str(NEW_YEAR)) == NEW_YEAR
    assert FORMS["plain"].inside_of_text("-5") == -5
    assert FORMS["plain"].inside_of_text("2026-01-01") == NEW_YEAR
    assert FORMS["ms"].inside_of_text("1767225600000") == NEW_YEAR
    with pytest.raises(RecordError, match="as s it does not"):
        FORMS["plain"].inside_of_text("1767225600")
    with pytest.raises(RecordError, match="does not fit the format"):
        FORMS["own"].inside_of_text("5")


def test_zones_and_formats_are_judged_beforehand() -> None:
    with pytest.raises(ValueError, match="Europa"):
        TimeForm(zone="Europa/Berlin").check()
    with pytest.raises(ValueError, match="cannot be read"):
        TimeForm(format="%y").check()


@given(
    st.lists(
        st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1))
        | st.datetimes(datetime(2026, 3, 29, 1), datetime(2026, 3, 29, 4))
        | st.datetimes(datetime(2026, 10, 25, 1), datetime(2026, 10, 25, 4)),
        min_size=1,
    )
)
def test_clocks_of_a_zone_are_read_together_as_they_are_alone(walls: list[datetime]) -> None:
    form, texts = FORMS["Berlin"], [wall.isoformat() for wall in walls]
    found = form.column(texts)
    assert found is not None
    assert found.tolist() == [form.inside(text) for text in texts]
