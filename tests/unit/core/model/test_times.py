from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, duration_text, duration_us


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("7us", 7),
        ("500ms", 500_000),
        ("10s", 10_000_000),
        ("2m", 120_000_000),
        ("1h30m", 5_400_000_000),
        ("1h 30m", 5_400_000_000),
        ("7d", 604_800_000_000),
        ("0.5s", 500_000),
        ("1.5h", 5_400_000_000),
        ("0s", 0),
    ],
)
def test_durations_are_read_in_words(text: str, us: int) -> None:
    assert duration_us(text) == us


@pytest.mark.parametrize(
    "text", ["", "10", "s", "10 seconds", "-5s", "1h30", "5s!", "1e3s", True, 1.5, None]
)
def test_what_is_no_duration_is_told_with_examples(text: object) -> None:
    with pytest.raises(ValueError, match="1h30m"):
        duration_us(text)  # type: ignore[arg-type]


def test_a_whole_number_is_microseconds_already() -> None:
    assert duration_us(42) == 42
    assert duration_us(-1) == -1


@given(st.integers(0, 2**50))
def test_a_duration_in_words_means_the_same_again(us: int) -> None:
    assert duration_us(duration_text(us)) == us


@pytest.mark.parametrize(
    ("us", "text"), [(90_000_000, "1m30s"), (0, "0s"), (-5, "-5us"), (1_000, "1ms")]
)
def test_durations_are_told_in_the_shortest_words(us: int, text: str) -> None:
    assert duration_text(us) == text


def test_idle_is_later_than_every_record_and_earlier_than_the_end() -> None:
    assert MIN_TIME < 0 < IDLE_TIME < MAX_TIME
