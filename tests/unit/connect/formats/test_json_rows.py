"""Rows as lines of JSON."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.connect.formats.json_rows import json_lines, json_lines_of


def test_what_json_lacks_becomes_what_it_has() -> None:
    value = {
        "b": b"\x00",
        "t": (1,),
        "n": float("nan"),
        "at": datetime(2026, 1, 1, tzinfo=timezone.utc),
        5: 1,
    }
    row = json.loads(json_lines([value]))
    assert row == {"b": "AA==", "t": [1], "n": None, "at": "2026-01-01T00:00:00Z", "5": 1}


def test_a_lone_surrogate_does_not_stop_the_sink() -> None:
    assert json.loads(json_lines([{"a\ud800": ["\udfff"]}])) == {"a?": ["?"]}


_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_LEAVES = st.none() | st.booleans() | _NUMBERS | st.text(st.characters(codec="utf-8"), max_size=5)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("pq"), inner),
    max_leaves=4,
)
ROWS = st.lists(st.dictionaries(st.sampled_from("abc"), _VALUES), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_each_row_is_one_line_of_json(rows: list[dict[str, Any]]) -> None:
    assert [json.loads(line) for line in json_lines(rows).split(b"\n")[:-1]] == rows


def test_structs_in_columns_are_the_lines_of_dicts() -> None:
    rows = [{"one": {"a": 1, "b": '\u00e4"\n', "c": True, "d": 0.1}, "two": None}]
    kind = pl.Struct({"a": pl.Int64, "b": pl.String, "c": pl.Boolean, "d": pl.Float64})
    assert json_lines_of([pl.DataFrame(rows, {"one": kind, "two": kind})]) == json_lines(rows)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats() | st.sampled_from([1e15, 1e16, -1e22, 5e-324, -0.0, 123.456])))
def test_floats_in_columns_have_the_text_of_rows(numbers: list[float]) -> None:
    rows = [{"x": number, "in": {"y": number, "n": 1}} for number in numbers]
    kinds = {"x": pl.Float64, "in": pl.Struct({"y": pl.Float64, "n": pl.Int64})}
    assert json_lines_of([pl.DataFrame(rows, kinds)]) == json_lines(rows)
