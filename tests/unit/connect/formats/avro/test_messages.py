"""Avro messages: damage, evolution, and schemas by their ids."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millwheel.connect.formats.avro.messages import AvroEncoder, AvroMessages
from millwheel.connect.formats.options import RegistryOptions
from millwheel.connect.formats.registry import Registration, Registry, header
from millwheel.errors import ExhaustedError, SetupError
from tests.fakes.schema_registry import FakeRegistryClient

CLICK = {
    "type": "record",
    "name": "shop.Click",
    "fields": [{"name": "ad", "type": "long"}, {"name": "k", "type": "string"}],
}
NEWER = {
    "type": "record",
    "name": "shop.Click",
    "fields": [
        {"name": "ad", "type": "double"},
        {"name": "page", "type": "string", "aliases": ["k"]},
        {"name": "country", "type": ["null", "string"], "default": None},
    ],
}
ROW = {"ad": 7, "k": "x"}


def registry(client: FakeRegistryClient) -> Registry:
    return Registry(RegistryOptions("http://r:1"), client)


def test_damaged_messages_are_told_and_their_neighbours_are_read() -> None:
    good = AvroEncoder(CLICK).encode(ROW)
    found = AvroMessages(CLICK, fields={"ad": "int"}).decode(
        [good, good[:-1], good + b"x", b"\xff" * 20, good]
    )
    assert (found.indexes, found.records) == ([0, 4], [ROW, ROW])
    assert found.wrong[1] == "it does not match its Avro schema: it ends too soon"
    assert found.wrong[2] == "it does not match its Avro schema: 1 bytes are left over"
    assert 3 in found.wrong


def test_bytes_that_nest_without_end_do_not_end_the_process() -> None:
    lists = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    found = AvroMessages(lists).decode([b"\x02" * 1_000_000, b"\x02\x00"])
    assert found.records == [{"next": {"next": None}}]
    assert "nests too deeply" in found.wrong[0]


def test_a_reader_takes_what_older_and_newer_writers_wrote() -> None:
    client = FakeRegistryClient()
    old, new = client.register("t-value", CLICK), client.register("t-value", NEWER)
    messages = [
        header(old) + AvroEncoder(CLICK).encode(ROW),
        header(new) + AvroEncoder(NEWER).encode({"ad": 1.5, "page": "y", "country": "de"}),
    ]
    assert AvroMessages(NEWER, registry(client)).decode(messages).records == [
        {"ad": 7.0, "page": "x", "country": None},
        {"ad": 1.5, "page": "y", "country": "de"},
    ]
    assert AvroMessages(None, registry(client)).decode(messages).records == [
        ROW,
        {"ad": 1.5, "page": "y", "country": "de"},
    ]
    assert client.asked == [old, new, old, new]


def test_ids_that_nobody_knows_and_schemas_of_other_kinds_are_told() -> None:
    client = FakeRegistryClient()
    good, other = client.register("t", CLICK), client.register("u", "message A {}", "PROTOBUF")
    endless = client.register("v", {"type": "array", "items": "null"})
    row = AvroEncoder(CLICK).encode(ROW)
    messages = [
        header(good) + row,
        header(99) + row,
        header(other) + row,
        b"{}",
        b"\x01" + row,
        header(endless) + b"\0",
    ]
    found = AvroMessages(None, registry(client)).decode(messages)
    assert found.indexes == [0]
    assert "has no schema with the id 99" in found.wrong[1]
    assert f"id {other}, is PROTOBUF, not AVRO" in found.wrong[2]
    assert "does not begin with the id of a schema" in found.wrong[3]
    assert "does not begin with the id of a schema" in found.wrong[4]
    assert "items take no bytes" in found.wrong[5]


def test_while_the_registry_is_away_nothing_is_decided() -> None:
    client = FakeRegistryClient()
    number = client.register("t", CLICK)
    client.away = True
    decoder, message = (
        AvroMessages(None, registry(client)),
        header(number) + AvroEncoder(CLICK).encode(ROW),
    )
    with pytest.raises(ExhaustedError, match="the schema registry at http://r:1 does not answer"):
        decoder.decode([message])
    client.away = False
    assert decoder.decode([message]).records == [ROW]
    client.away = True  # what is known is not asked for again
    assert decoder.decode([message]).records == [ROW]


def test_schemas_may_refer_to_others() -> None:
    client = FakeRegistryClient()
    client.register("click", CLICK)
    whole: dict[str, Any] = {
        "type": "record",
        "name": "shop.Two",
        "fields": [{"name": "a", "type": "shop.Click"}, {"name": "b", "type": "shop.Click"}],
    }
    number = client.register("two", whole, references=[("shop.Click", "click", 1)])
    row = AvroEncoder(CLICK).encode(ROW)
    assert AvroMessages(None, registry(client)).decode([header(number) + row * 2]).records == [
        {"a": ROW, "b": ROW}
    ]


def test_a_sink_registers_its_schema_once() -> None:
    client = FakeRegistryClient()
    encoder = AvroEncoder(
        CLICK, True, Registration(registry(client), "t-value", "AVRO", json.dumps(CLICK))
    )
    assert encoder.header() == encoder.header() == header(1)
    assert client.registered == ["t-value"]


def test_without_schema_and_registry_there_is_nothing_to_read_with() -> None:
    with pytest.raises(ValueError, match=r"avro needs 'schema'.*or 'registry'"):
        AvroMessages(None)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[avro\]'"):
        AvroMessages(CLICK)


@pytest.mark.parametrize("kind", [{"type": "long", "logicalType": "timestamp-millis"}, "long"])
def test_times_in_columns_and_in_rows(kind: Any) -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "at", "type": kind}]}
    at = 1_767_225_600_000_000 if isinstance(kind, dict) else 1_767_225_600
    form = "timestamp" if isinstance(kind, dict) else "timestamp s - -"
    messages = [AvroEncoder(schema, strict=False).encode({"at": at})] * 3
    read = AvroMessages(schema, fields={"at": form})
    assert [each["at"] for each in read.decode(messages).records] == [1_767_225_600_000_000] * 3
    frame = read.frame(messages)
    assert frame is not None
    assert frame["at"].to_list() == [1_767_225_600_000_000] * 3


def test_numbers_of_another_unit_are_looked_at_one_by_one() -> None:
    messages = [AvroEncoder({**CLICK}).encode({"ad": 1_767_225_600, "k": "x"})]
    read = AvroMessages(CLICK, fields={"ad": "timestamp"})
    assert read.frame(messages) is None
    assert "as s it does not" in read.decode(messages).wrong[0]
