"""CSV files: what a reader of CSV gets back."""

from __future__ import annotations

import csv
import io

from millwheel.formats.csv_rows import CsvRows


def read(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


def test_texts_with_commas_quotes_and_line_breaks_come_back() -> None:
    rows = [{"a": 'x,"y"', "b": "two\nlines"}, {"a": "é", "b": ""}]
    assert read(CsvRows().encode(rows)) == rows


def test_what_csv_lacks_is_json_and_none_is_empty() -> None:
    row = {"n": 1, "f": 0.5, "yes": True, "none": None, "list": [1, "a"], "map": {"k": None}, "raw": b"\x00\xff"}
    assert read(CsvRows().encode([row])) == [
        {"n": "1", "f": "0.5", "yes": "true", "none": "", "list": '[1,"a"]', "map": '{"k":null}', "raw": "AP8="}
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
