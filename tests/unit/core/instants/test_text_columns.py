"""Many texts at once are what each of them is alone, or none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.instants.text_columns import texts_us
from millwheel.core.instants.texts import text_us
from millwheel.errors import RecordError
from tests.unit.core.instants.test_texts import TEXTS

_TWO = st.integers(0, 99).map("{:02}".format)
_NEARLY = st.builds(
    lambda date, mark, clock, fraction, offset: f"{date}{mark}{clock}{fraction}{offset}",
    st.builds(
        "{:04}-{}-{}".format,
        st.integers(0, 9999),
        st.integers(0, 13).map("{:02}".format),
        st.integers(0, 32).map("{:02}".format),
    ),
    st.sampled_from("TT t"),
    st.builds("{}:{}:{}".format, st.integers(0, 25).map("{:02}".format), _TWO, _TWO),
    st.sampled_from(["", ".5", ".123", ".123456", ".123456789", ",5", ".12x"]),
    st.sampled_from(["", "Z", "z", "+01:00", "-0430", "+24:00", "+01:60", "+01"]),
)


def _alone(texts: list[str]) -> list[int] | None:
    try:
        return [text_us(text) for text in texts]
    except RecordError:
        return None


@given(st.lists(_NEARLY, min_size=1, max_size=4))
def test_what_is_read_together_is_what_is_read_alone(texts: list[str]) -> None:
    found = texts_us(texts)
    assert found is None or found.tolist() == _alone(texts)


@given(st.lists(st.datetimes(), min_size=1), st.sampled_from(["", "Z", "+00:00", "-1130"]))
def test_all_that_python_writes_is_read_together(times: list, offset: str) -> None:  # type: ignore[type-arg]
    texts = [f"{time.isoformat()}{offset}" for time in times]
    found = texts_us(texts)
    assert found is not None
    assert found.tolist() == _alone(texts)


def test_days_alone_and_other_layouts() -> None:
    found = texts_us(["2026-01-01", "1969-12-31"])
    assert found is not None
    assert found.tolist() == [text_us("2026-01-01"), text_us("1969-12-31")]
    for text in TEXTS:
        alone = texts_us([text])
        assert alone is None or alone.tolist() == [TEXTS[text]]


@pytest.mark.parametrize(
    "other",
    [
        "2026-02-30T00:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T24:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026/01/01T00:00:00Z",
        "2026-01-01x00:00:00Z",
        "2026-01-01T00.00:00Z",
        "2026-01-01T00:00:0äZ",
        "٢٠٢٦-01-01T00:00:00Z",
        "2026-01-01T00:00:00+",
    ],
)
def test_one_text_that_is_another_sends_all_to_be_read_alone(other: str) -> None:
    assert texts_us(["2026-01-01T00:00:00Z", other]) is None
    assert texts_us([other, "2026-01-01T00:00:00Z"]) is None


def test_too_many_lengths_are_read_alone() -> None:
    texts = ["2026-01-01T00:00:00." + "1" * digits for digits in range(1, 20)]
    assert texts_us(texts) is None
    assert texts_us(texts[:12]) is not None


def test_offsets_differ_within_a_column() -> None:
    texts = ["2026-01-01T00:00:00+01:00", "2026-01-01T00:00:00-05:30"]
    found = texts_us(texts)
    assert found is not None
    assert found.tolist() == _alone(texts)
    assert texts_us(["2026-01-01T00:00:00+01:00", "2026-01-01T00:00:00.12345"]) is None
