"""What a call hands to its context: checked, and made plain. See also test_user_code.py, which makes the calls."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

from millwheel.core.model.records import Domain
from millwheel.core.model.times import LAST_TIME, MIN_TIME
from millwheel.errors import RecordError
from millwheel.workers.bundle.call_checks import counted, moment, timer_domain, timer_tag


class Tag(str, enum.Enum):
    SOON = "soon"


def test_tags_are_plain_text() -> None:
    assert timer_tag("set_timer", "a\0b", 100) == "a\0b"
    assert type(timer_tag("set_timer", Tag.SOON, 100)) is str
    assert timer_tag("set_timer", "ä" * 50, 100) == "ä" * 50
    for wrong in (5, None, b"a", "\0a", "\ud83d", "ä" * 51):
        with pytest.raises(RecordError, match="set_timer"):
            timer_tag("set_timer", wrong, 100)


def test_times_are_whole_numbers_within_the_range() -> None:
    assert moment("produce", np.int64(5)) == 5
    assert moment("produce", 2**70) == LAST_TIME
    assert moment("produce", -(2**70)) == MIN_TIME
    for wrong in (1.5, "1", None, True):
        with pytest.raises(RecordError, match="whole number of µs"):
            moment("produce", wrong)


def test_domains_are_domains() -> None:
    assert timer_domain("set_timer", Domain.EVENT) is Domain.EVENT
    with pytest.raises(RecordError, match=r"Domain\.EVENT"):
        timer_domain("set_timer", "event")


@pytest.mark.parametrize(("by", "number"), [(1, 1), (-3, -3), (True, 1), (np.int32(7), 7), (2**63 - 1, 2**63 - 1)])
def test_counters_take_whole_numbers(by: Any, number: int) -> None:
    name, found = counted("retries", by)
    assert (name, found, type(found)) == ("retries", number, int)
