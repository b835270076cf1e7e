"""Messages and files of others: whatever their bytes are, each is a record or wrong, and nothing
else is raised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.formats.avro.containers import Container, ContainerRows
from millwheel.connect.formats.avro.messages import AvroEncoder, AvroMessages
from millwheel.connect.formats.base import MessageDecoder
from millwheel.connect.formats.choice import build_decoder
from millwheel.connect.formats.debezium import DebeziumMessages
from millwheel.connect.formats.lines import CsvMessages, JsonMessages, TextMessages
from millwheel.connect.formats.options import (
    CsvOptions,
    DebeziumOptions,
    ProtobufOptions,
    RegistryOptions,
    TextOptions,
    read_format,
)
from millwheel.connect.formats.protobuf_messages import (
    ProtobufEncoder,
    ProtobufMessages,
    message_class,
)
from millwheel.connect.formats.registry import Registry, header
from millwheel.errors import SetupError
from tests.fakes.protobuf import FULL, write_descriptors
from tests.fakes.schema_registry import FakeRegistryClient
from tests.fuzz.test_decoders import PLAIN, damaged, fuzz

LOGICAL = [
    ("int", "date"),
    ("long", "timestamp-millis"),
    ("int", "time-millis"),
    ("string", "uuid"),
]
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "n", "type": ["null", "long"]},
        *({"name": name, "type": {"type": kind, "logicalType": name}} for kind, name in LOGICAL),
        {"name": "money", "type": ["null", DECIMAL]},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {"name": "more", "type": ["null", "R"]},
    ],
}
FLAT = {**SCHEMA, "fields": SCHEMA["fields"][:-1]}
"""It does not hold itself, so it is read by the library in C."""
ROW: dict[str, Any] = {
    "n": 1,
    "date": "2026-01-01",
    "timestamp-millis": 1_000,
    "time-millis": 1_000,
    "uuid": "x",
    "money": 1.25,
    "tags": {"a": ["b"]},
    "more": None,
}
EVENT = b'{"before": {"n": 1}, "after": {"n": 2}, "op": "u", "source": {"table": "t"}}'


def avro_with_registry() -> MessageDecoder:
    client = FakeRegistryClient()
    for schema in (SCHEMA, "[", {"type": "array", "items": "null"}, "3"):
        client.register("t", schema)
    client.register("t", "x", "JSON")
    return AvroMessages(None, Registry(RegistryOptions("http://r:1"), client))


def click(folder: Path) -> Any:
    return message_class(ProtobufOptions("shop.Click", write_descriptors(folder)), str(folder))


@pytest.fixture(scope="module")
def decoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[MessageDecoder, bytes]]:
    row, made = (
        AvroEncoder(SCHEMA).encode({**ROW, "more": ROW}),
        click(tmp_path_factory.mktemp("click")),
    )
    avro_event = {"debezium": {"encoding": {"avro": {"schema": SCHEMA}}}}
    return {
        "json": (JsonMessages(None, {"n": "int"}), b'{"n": 1}'),
        "csv": (CsvMessages(CsvOptions(["a", "b"]), {"a": "int"}), b'1,"x"'),
        "text": (TextMessages(TextOptions(), False), b"x"),
        "avro": (AvroMessages(SCHEMA, fields={"n": "int"}), row),
        "avro in C": (
            AvroMessages(FLAT),
            AvroEncoder(FLAT).encode({name: ROW[name] for name in ROW if name != "more"}),
        ),
        "avro by id": (avro_with_registry(), header(1) + row),
        "protobuf": (
            ProtobufMessages(made, fields={"ad": "int"}),
            ProtobufEncoder(made).encode(FULL),
        ),
        "debezium": (
            DebeziumMessages(
                JsonMessages(), DebeziumOptions(add={"t": "source.table"}), {"n": "int"}
            ),
            EVENT,
        ),
        "debezium in avro": (build_decoder(read_format(avro_event, ("debezium",)), "", {}), row),
    }


NAMES = [
    "json",
    "csv",
    "text",
    "avro",
    "avro in C",
    "avro by id",
    "protobuf",
    "debezium",
    "debezium in avro",
]


def each_alone(decoder: MessageDecoder, messages: list[bytes]) -> None:
    """Each message is what it is alone, whatever stands beside it."""
    together = decoder.decode(messages)
    assert not set(together.indexes) & together.wrong.keys()
    assert together.indexes == sorted(set(together.indexes))
    records = dict(zip(together.indexes, together.records, strict=True))
    for index, message in enumerate(messages):
        alone = decoder.decode([message])
        assert repr(alone.records) == repr([records[index]] if index in records else [])
        assert list(alone.wrong.values()) == (
            [together.wrong[index]] if index in together.wrong else []
        )


@pytest.mark.parametrize("name", NAMES)
@fuzz
@given(data=st.data())
def test_damaged_messages_are_wrong_or_records(
    name: str, decoders: dict[str, tuple[MessageDecoder, bytes]], data: st.DataObject
) -> None:
    decoder, whole = decoders[name]
    each_alone(
        decoder,
        [data.draw(damaged(whole)) or b"\0", whole, data.draw(st.binary(min_size=1, max_size=40))],
    )


@fuzz
@given(value=PLAIN)
def test_any_json_is_an_event_or_none(value: Any) -> None:
    decoder = DebeziumMessages(
        JsonMessages(), DebeziumOptions(add={"t": "source.table.x"}), {"n": "int"}
    )
    update = {"op": "u", "before": value, "after": value, "source": value}
    for event in (value, update, {"payload": value}, {"op": value}):
        decoder.decode([msgspec.json.encode(event, enc_hook=str)])


def test_hostile_messages_are_refused(decoders: dict[str, tuple[MessageDecoder, bytes]]) -> None:
    hostile = [
        b"\x02" * 300_000,
        b"[" * 300_000,
        b'{"a":' * 100_000,
        b"\xff" * 64,
        b"\0" * 5,
        b'"' * 999,
    ]
    hostile.append(b"\0\0\0\0\x02\xfe")
    for decoder, whole in decoders.values():
        found = decoder.decode([*hostile, whole])
        assert set(found.indexes) | found.wrong.keys() <= set(range(len(hostile) + 1))


@fuzz
@given(data=st.data())
def test_a_damaged_file_is_read_or_a_sentence(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("avro") / "in.avro"
    path.write_bytes(data.draw(damaged(ContainerRows(SCHEMA, True).encode([ROW] * 3))))
    try:
        container = Container(str(path), None, "float")
    except SetupError:
        return
    try:
        position = 0
        while not container.finished():
            position += len(container.after(position, 2))
    except SetupError:
        return
    finally:
        container.close()
