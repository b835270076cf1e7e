"""CSV files: what a reader of CSV gets back."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.connect.formats.choice import build_decoder
from millwheel.connect.formats.lines import CsvMessageRows
from millwheel.connect.formats.options import CsvOptions, read_format
from millwheel.connect.formats.row_lines import (
    MOST_COLUMNS,
    OTHER_FIELDS,
    CsvRows,
    json_lines,
    json_lines_of,
)
from tests.fakes.reading import open_file, read_on


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


def read(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


def test_texts_with_commas_quotes_and_line_breaks_come_back() -> None:
    rows = [{"a": 'x,"y"', "b": "two\nlines"}, {"a": "é", "b": ""}]
    assert read(CsvRows().encode(rows)) == rows


def test_what_csv_lacks_is_json_and_none_is_empty() -> None:
    row = {
        "n": 1,
        "f": 0.5,
        "yes": True,
        "none": None,
        "list": [1, "a"],
        "map": {"k": None},
        "raw": b"\x00\xff",
    }
    assert read(CsvRows().encode([row])) == [
        {
            "n": "1",
            "f": "0.5",
            "yes": "true",
            "none": "",
            "list": '[1,"a"]',
            "map": '{"k":null}',
            "raw": "AP8=",
        }
    ]


def test_columns_keep_their_places_from_file_to_file() -> None:
    rows = CsvRows()
    rows.encode([{"a": 1}, {"b": 2}])
    assert rows.encode([{"c": 3, "b": 4}]) == b"a,b,c\n,4,3\n"
    assert rows.encode([]) == b"a,b,c\n"


def test_declared_fields_are_the_columns_and_no_others() -> None:
    assert CsvRows(["b", "a"]).encode([{"a": 1, "x": 9}]) == b"b,a\n,1\n"


def test_broken_text_does_not_stop_a_file() -> None:
    assert read(CsvRows().encode([{"a": "\ud800"}])) == [{"a": "?"}]


NASTY = [
    "one\rtwo",
    "one\ntwo",
    "one\r\ntwo",
    'quo"te',
    "a,b",
    " blank ",
    "",
    "'",
    "é",
    "\u2028",
    "#",
    "\\",
    "\t",
]


@pytest.mark.parametrize("text", NASTY)
def test_every_text_comes_back_by_every_reader(tmp_path: Path, text: str) -> None:
    data = CsvRows().encode([{"a": text, "b": "x"}, {"a": "y", "b": text}])
    wanted = [{"a": text, "b": "x"}, {"a": "y", "b": text}]
    assert list(csv.DictReader(io.StringIO(data.decode(), newline=""))) == wanted
    # as no version of Python may leave it to itself
    assert data.count(b'"') or not {"\r", "\n", '"', ","} & set(text)
    frame = pl.read_csv(data, infer_schema=False).fill_null("")
    assert frame.to_dicts() == wanted
    (tmp_path / "a.csv").write_bytes(data)
    assert read_on(open_file(tmp_path / "a.csv", "csv")).values == wanted


def test_a_zero_byte_which_readers_refuse_is_replaced() -> None:
    assert CsvRows().encode([{"a": "x\0y"}]).decode() == "a\nx\ufffdy\n"


def test_times_and_their_like_are_plain_text() -> None:
    moment = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    row = {"at": moment, "day": moment.date(), "id": UUID(int=1), "price": Decimal("1.50")}
    [back] = read(CsvRows().encode([row]))
    assert back == {
        "at": "2026-01-01T12:00:00Z",
        "day": "2026-01-01",
        "id": str(UUID(int=1)),
        "price": "1.50",
    }


def test_the_quoting_of_old_versions_of_python_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def by_the_end_of_lines_alone(rows: Any, delimiter: str = ",") -> list[str]:
        """A mistake: only what ends a line is quoted, as before Python 3.11.9 and 3.12.3."""
        return [
            delimiter.join("" if field is None else str(field) for field in row) for row in rows
        ]

    monkeypatch.setattr("millwheel.connect.formats.row_lines.written", by_the_end_of_lines_alone)
    with pytest.raises((AssertionError, pl.exceptions.ComputeError)):
        test_every_text_comes_back_by_every_reader(tmp_path, "one\rtwo")


FORMULAS = (
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\uff1d1+1",
    "=",
    "+1-555-0100",
)


@pytest.mark.parametrize("text", FORMULAS)
def test_no_spreadsheet_computes_a_safe_cell(text: str) -> None:
    [row] = csv.DictReader(
        io.StringIO(CsvRows((), True).encode([{text: text}]).decode(), newline="")
    )
    assert row == {f"'{text}": f"'{text}"}
    options = CsvOptions(["a"], spreadsheet_safe=True)
    assert CsvMessageRows(options).encode({"a": text}).decode().strip('"').startswith("'")


def test_numbers_and_other_texts_are_what_they_were() -> None:
    row = {
        "n": -1,
        "f": -0.5,
        "d": Decimal("-2.50"),
        "t": "-3.5e7",
        "plain": "a=b",
        "none": None,
        "empty": "",
    }
    assert CsvRows((), True).encode([row]) == CsvRows().encode([row])


def test_fields_of_outside_cannot_make_columns_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    encoder = CsvRows()
    for number in range(3):
        rows = [{"id": at, f"f{number}-{at}": at} for at in range(MOST_COLUMNS)]
        back = list(csv.DictReader(io.StringIO(encoder.encode(rows).decode())))
        assert len(back[0]) <= MOST_COLUMNS + 1
        for at, row in enumerate(back):  # nothing of a row is lost
            others = json.loads(row[OTHER_FIELDS] or "{}")
            cells = {name: int(text) for name, text in row.items() if text and name != OTHER_FIELDS}
            assert {**others, **cells} == rows[at]
    assert len([each for each in caplog.records if "other_fields" in each.getMessage()]) == 1


def test_a_field_of_the_name_of_the_last_column_is_in_it() -> None:
    rows = [{"a": 1, OTHER_FIELDS: 2}, {"b": 3}]
    back = list(csv.DictReader(io.StringIO(CsvRows().encode(rows).decode())))
    assert back == [
        {"a": "1", "b": "", OTHER_FIELDS: '{"other_fields":2}'},
        {"a": "", "b": "3", OTHER_FIELDS: ""},
    ]
    assert CsvRows([OTHER_FIELDS]).encode(rows[:1]) == b"other_fields\n2\n"


def test_a_source_has_no_safe_cells() -> None:
    with pytest.raises(ValueError, match="spreadsheet_safe is for sinks"):
        build_decoder(
            read_format({"csv": {"columns": ["a"], "spreadsheet_safe": True}}, ("csv",)), "", {}
        )
