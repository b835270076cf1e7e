"""Change logs: every record is a row, and its mark says whether it is said or taken back."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.connect.sinks.changes import change_rows
from millwheel.connect.sinks.files.sink import build_files
from millwheel.connect.sinks.stdout import build_stdout
from millwheel.core.windows.panes import Retraction, retracted

RECORDS = [
    SinkRecord("a", {"n": 1}, 5),
    SinkRecord("a", retracted({"n": 1}), 5),
    SinkRecord("a", {"n": 2, "change": "mine"}, 6),
    SinkRecord("b", Retraction([1, 2]), 7),
    SinkRecord("b", {"__retraction__": 2, "value": 8}, 7),
]
ROWS = [
    {"change": "+", "n": 1},
    {"change": "-", "n": 1},
    {"change": "+", "n": 2},
    {"change": "-", "value": [1, 2]},
    {"change": "-", "value": 8},
]


def test_a_mark_stands_in_place_of_the_retraction() -> None:
    assert change_rows(RECORDS, False, False, "change") == ROWS


def test_key_timestamp_and_another_name_for_the_mark() -> None:
    assert change_rows(RECORDS[1:3], True, True, "op") == [
        {"op": "-", "key": "a", "timestamp": 5, "n": 1},
        {"op": "+", "key": "a", "timestamp": 6, "n": 2, "change": "mine"},
    ]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_files_hold_the_change_log(tmp_path: Path, form: str) -> None:
    sink = build_files({"path": "out", "format": form, "mode": "changelog"}, str(tmp_path))
    sink.check("root")
    assert sink.takes_retractions
    writer = sink.open("sink.out-0", 1)
    writer.publish(writer.prepare(SinkBatch(0, "1-1", RECORDS[:2])))
    [file] = (tmp_path / "out").glob(f"part-*.{form}")
    if form == "parquet":
        assert pq.read_table(file).to_pylist() == ROWS[:2]
    elif form == "csv":
        assert file.read_text() == "change,n\n+,1\n-,1\n"
    else:
        assert [json.loads(line) for line in file.read_text().splitlines()] == ROWS[:2]


def test_standard_output_can_be_a_change_log() -> None:
    out = io.StringIO()
    sink = build_stdout({"mode": "changelog"}, out)
    sink.publish(sink.prepare(SinkBatch(0, "1-1", RECORDS)))
    assert [json.loads(line) for line in out.getvalue().splitlines()] == ROWS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "replace"}, "option 'mode' is 'replace'; write one of append, changelog, upsert"),
        ({"by": "user"}, "option 'by' says which fields identify a row of mode: upsert"),
        ({"mode": "changelog", "by": ["user"]}, "option 'by' says which fields"),
        ({"mode": "changelog", "mark": ""}, "option 'mark' is empty"),
        (
            {"mode": "changelog", "format": "csv", "fields": {"a": "int"}},
            "lacks the mark; add change: str",
        ),
        (
            {"format": "jsonl", "fields": {"a": "int"}},
            "fixes the columns of format: parquet and csv",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_files({"path": "out", **options}, "/")


def test_printed_lines_cannot_be_replaced() -> None:
    with pytest.raises(ValueError, match="what is printed cannot be replaced; write changelog"):
        build_stdout({"mode": "upsert"})
