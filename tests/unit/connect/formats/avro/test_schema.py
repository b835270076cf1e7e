"""Schemas from text and files, and those that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.formats.avro.schema import load_schema, parse

CLICK = {
    "type": "record",
    "name": "Click",
    "namespace": "shop",
    "fields": [{"name": "ad", "type": "long"}],
}


def test_a_schema_is_a_map_text_or_a_file_beside_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "click.avsc").write_text(json.dumps(CLICK))
    for given in (CLICK, json.dumps(CLICK), "click.avsc"):
        assert load_schema(given, str(tmp_path)) == CLICK
    with pytest.raises(ValueError, match=r"option 'schema': cannot read .*no\.avsc"):
        load_schema("no.avsc", str(tmp_path))
    (tmp_path / "bad.avsc").write_text("{")
    with pytest.raises(ValueError, match=r"bad\.avsc is not JSON"):
        load_schema("bad.avsc", str(tmp_path))


@pytest.mark.parametrize(
    "schema", ["lnog", {"type": "record"}, {"a": 1}, 3, {"type": "enum", "name": "e"}]
)
def test_what_is_no_schema_is_a_sentence(schema: Any) -> None:
    with pytest.raises(ValueError, match="option 'schema' is not an Avro schema"):
        parse(schema)


def test_logical_types_are_known_but_not_left_to_the_library() -> None:
    time = {"type": "long", "logicalType": "timestamp-millis"}
    parsed = parse(
        {"type": "record", "name": "T", "fields": [{"name": "at", "type": ["null", time]}]}
    )
    assert parsed.full["fields"][0]["type"][1]["logicalType"] == "timestamp-millis"
    assert parsed.bare["fields"][0]["type"] == ["null", "long"]
    assert not parsed.recursive


def test_a_type_that_holds_itself_is_noticed() -> None:
    lists = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    assert parse(lists).recursive
    twice = {"name": "a", "type": CLICK}, {"name": "b", "type": "shop.Click"}
    assert not parse({"type": "record", "name": "T", "fields": list(twice)}).recursive


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "E", "fields": []}])
def test_arrays_that_ten_bytes_could_fill_the_memory_with_are_refused(items: Any) -> None:
    with pytest.raises(ValueError, match="an array whose items take no bytes"):
        parse({"type": "array", "items": items})
