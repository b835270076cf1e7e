"""Panes as records, and retractions on the wire."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millwheel
from millwheel.core.windows.panes import (
    Pane,
    Retraction,
    Timing,
    as_retraction,
    pane_of,
    pane_row,
    remember_pane,
    retract_pane,
    retracted,
)
from millwheel.core.windows.windows import Window


def _pane(**settings: Any) -> Pane:
    defaults: dict[str, Any] = {
        "key": "a", "window": Window(0, 10), "result": {"hits": 3}, "timestamp": 9,
        "timing": Timing.ON_TIME,
        "index": 0, "nonspeculative_index": 0, "is_first": True, "is_last": True,
    }  # fmt: skip
    return Pane(**defaults | settings)


def test_a_pane_becomes_a_row_of_key_window_and_results() -> None:
    assert pane_row(_pane(), {"path": "a"}) == {
        "path": "a",
        "window_start": 0,
        "window_end": 10,
        "hits": 3,
    }


def test_a_single_result_is_called_so() -> None:
    row = pane_row(_pane(result=5), {"path": "a", "user": 7})
    assert row == {"path": "a", "user": 7, "window_start": 0, "window_end": 10, "result": 5}


def test_a_retracting_row_is_marked_and_keeps_its_fields() -> None:
    row = pane_row(_pane(retraction=True), {"path": "a"})
    assert row == {"path": "a", "window_start": 0, "window_end": 10, "hits": 3, "__retraction__": 1}
    assert as_retraction(row) == Retraction(pane_row(_pane(), {"path": "a"}))


@pytest.mark.parametrize("value", [{"value": 3}, {"a": 1, "b": [2]}, {}, 3, "text", None, [1, 2]])
def test_a_retraction_survives_the_wire_without_anybody_knowing_it(value: Any) -> None:
    for form in (retracted(value), Retraction(value)):
        travelled = msgspec.msgpack.decode(msgspec.msgpack.encode(form))
        assert type(travelled) is dict
        assert as_retraction(travelled) == as_retraction(form) == Retraction(value)


def test_plain_values_are_no_retractions() -> None:
    assert as_retraction({"value": 3}) is None
    assert as_retraction(3) is None


def test_timings_read_as_words() -> None:
    assert [str(timing) for timing in Timing] == ["early", "on_time", "late"]
    assert Timing.EARLY == "early"


@given(
    st.sampled_from(Timing),
    st.integers(0, 9),
    st.integers(-1, 9),
    st.booleans(),
    st.none() | st.integers(0, 8),
)
def test_the_retraction_of_a_pane_is_that_pane_marked(
    timing: Timing, index: int, nonspeculative: int, last: bool, at: int | None
) -> None:
    pane = pane_of(
        "k", Window(5, 9), {"n": 1}, timing, index, last, nonspeculative=nonspeculative, at=at
    )
    assert (pane.is_first, pane.timestamp) == (index == 0, 8 if at is None else at)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(remember_pane(pane)))
    back = retract_pane("k", stored)
    assert back.retraction
    assert msgspec.structs.replace(back, retraction=False) == pane


def test_panes_are_built_in_one_place() -> None:
    package = Path(millwheel.__file__).parent
    building = [
        path.name
        for path in package.rglob("*.py")
        if re.search(r"\bPane\($", path.read_text(), re.MULTILINE)
    ]
    assert building == ["panes.py"]
