"""Every format is there both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.formats.base import Decoding, checked, decode_one_by_one
from millwheel.connect.formats.choice import build_decoder, build_encoder
from millwheel.connect.formats.options import read_format
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.core.pipeline.table_changes import split
from millwheel.errors import RecordError
from tests.fakes.protobuf import write_descriptors

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "value", "type": "string"}]}
PROTOBUF = {"protobuf": {"message": "shop.Click.Tag", "descriptor": "shop.desc"}}
BOTH_WAYS: list[tuple[Any, dict[str, Any]]] = [
    ("json", {"value": "x"}),
    ("text", {"value": "x"}),
    ("raw", {"value": b"x"}),
    ({"csv": {"columns": ["value"]}}, {"value": "x"}),
    ({"avro": {"schema": SCHEMA}}, {"value": "x"}),
    (PROTOBUF, {"text": "x", "within": None}),
]


@pytest.mark.parametrize(
    ("given", "row"), BOTH_WAYS, ids=lambda part: next(iter(part)) if type(part) is dict else part
)
def test_what_a_format_writes_it_reads(given: Any, row: dict[str, Any], tmp_path: Path) -> None:
    write_descriptors(tmp_path)
    form = read_format(given, [given] if isinstance(given, str) else list(given))
    encoder = build_encoder(form, str(tmp_path), "t-value")
    encoder.check()
    assert encoder.header() == b""
    assert build_decoder(form, str(tmp_path), {}).decode([encoder.encode(row)]).records == [row]


def test_change_events_may_be_avro() -> None:
    row: dict[str, Any] = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "id", "type": "long"}],
    }
    fields = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]}]
    envelope = {
        "type": "record",
        "name": "E",
        "fields": [*fields, {"name": "op", "type": "string"}],
    }
    avro = {"avro": {"schema": envelope}}
    event = build_encoder(read_format(avro, ("avro",)), "", "").encode(
        {"before": None, "after": {"id": 1}, "op": "c"}
    )
    decoder = build_decoder(read_format({"debezium": {"encoding": avro}}, ("debezium",)), "", {})
    assert decoder.changes
    assert [split(change)[1] for change in decoder.decode([event]).records[0]] == [{"id": 1}]


def test_avro_needs_a_schema_to_write() -> None:
    with pytest.raises(ValueError, match="avro needs 'schema' to write"):
        build_encoder(read_format("avro", ("avro",)), "", "")


@pytest.mark.parametrize("encoding", ["json", {"json": {}}])
def test_decimals_of_change_events_are_read_as_they_are_written(encoding: Any) -> None:
    form = read_format({"debezium": {"encoding": encoding, "add": {"ts": "ts"}}}, ["debezium"])
    decoder = build_decoder(form, "", {"price": "decimal(18, 2)"})
    row = '{"price": 9007199254740993.25, "x": 0.5}'
    [changes] = decoder.decode([b'{"op": "c", "after": %s, "ts": 1.5}' % row.encode()]).records
    change, found = split(changes[0])
    assert (found["price"], found["x"], found["ts"]) == (900719925474099325, 0.5, 1.5)
    assert type(found["x"]) is type(found["ts"]) is float
    assert not change.back


# base.py: What all decoders have in common.


def test_messages_that_are_no_record_are_told_by_number() -> None:
    def one(message: bytes) -> int:
        if message == b"bad":
            raise RecordError("it is bad")
        return int(message)

    assert decode_one_by_one([b"1", b"bad", b"x", b"2"], one) == (
        [0, 3],
        [1, 2],
        {1: "it is bad", 2: "invalid literal for int() with base 10: b'x'"},
    )


def test_declared_fields_of_other_types_are_told_and_the_others_keep_their_numbers() -> None:
    found = checked(
        Decoding([1, 4, 5], [{"n": 1}, {"n": "x"}, {}], {0: "bad"}), FieldTypes({"n": "int"})
    )
    assert (found.indexes, found.records) == ([1, 5], [{"n": 1}, {}])
    assert found.wrong == {0: "bad", 4: "field 'n' is str 'x', but is declared as int"}
