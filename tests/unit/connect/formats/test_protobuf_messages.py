"""Protobuf messages: damage, and the indexes of their type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.formats.options import ProtobufOptions, RegistryOptions
from millwheel.connect.formats.protobuf_messages import (
    ProtobufEncoder,
    ProtobufMessages,
    file_text,
    indexes,
    message_class,
    read_indexes,
    write_indexes,
)
from millwheel.connect.formats.registry import Registration, Registry, header
from millwheel.errors import RecordError
from tests.fakes.protobuf import FULL, write_descriptors
from tests.fakes.schema_registry import FakeRegistryClient


@pytest.fixture
def click(tmp_path: Path) -> Any:
    return message_class(ProtobufOptions("shop.Click", write_descriptors(tmp_path)), str(tmp_path))


def test_messages_are_read_as_they_were_written_and_damage_is_told(click: Any) -> None:
    good = ProtobufEncoder(click).encode(FULL)
    decoder = ProtobufMessages(click, fields={"ad": "int", "name": "str"})
    assert decoder.takes_empty
    found = decoder.decode([good, good[:-1], b"\xff" * 9, b"", good])
    assert (found.indexes, found.records[0], found.records[1]["ad"]) == ([0, 3, 4], FULL, 0)
    assert found.wrong[1].startswith("it is not a Protobuf message shop.Click")


def test_with_a_registry_a_message_tells_its_schema_and_its_type(click: Any) -> None:
    client = FakeRegistryClient()
    registry = Registry(RegistryOptions("http://r:1"), client)
    encoder = ProtobufEncoder(click, True, Registration(registry, "t-value", "PROTOBUF", "a file"))
    encoder.check()
    other = client.register("u", '"long"')
    body = encoder.encode({"ad": 5})
    messages = [
        encoder.header() + body,
        header(1) + b"\0" + body,
        header(other) + b"\0" + body,
        header(1),
        body,
    ]
    found = ProtobufMessages(click, registry).decode(messages)
    assert (found.indexes, found.records[0]["ad"]) == ([0], 5)
    assert "it is the message [0] of its schema's file, and shop.Click is [1]" in found.wrong[1]
    assert "is AVRO, not PROTOBUF" in found.wrong[2]
    assert "ends within the indexes" in found.wrong[3]


@given(st.lists(st.integers(0, 2**30), min_size=1, max_size=32), st.binary(max_size=3))
def test_the_place_of_a_type_is_read_as_it_was_written(path: list[int], rest: bytes) -> None:
    data = write_indexes(path)
    assert read_indexes(data + rest, 0) == (path, len(data))
    with pytest.raises(RecordError, match="ends within"):
        read_indexes(data[:-1], 0)


@pytest.mark.parametrize("data", [b"", b"\xff" * 9, b"\x80\x01", b"\x01\x00"])
def test_a_place_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        read_indexes(data, 0)


def test_a_small_message_cannot_become_millions_of_values() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="bomb.proto", package="bomb", syntax="proto3")
    inner = file.message_type.add(name="Inner")
    for number in range(1, 51):
        inner.field.add(name=f"f{number}", number=number, type=3, label=1)
    outer = file.message_type.add(name="Outer")
    outer.field.add(name="many", number=1, type=11, type_name=".bomb.Inner", label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("bomb.Outer"))
    decoder = ProtobufMessages(made)
    found = decoder.decode([b"\x0a\x00" * 200_000, b"\x0a\x00" * 10])
    assert "more than 4,000,000 values" in found.wrong[0]
    assert len(found.records[0]["many"]) == 10


def test_decimals_are_texts_or_whole_numbers_and_no_floats(click: Any) -> None:
    good = ProtobufEncoder(click).encode({"name": "10.5", "ad": 3})
    decoder = ProtobufMessages(click, fields={"ad": "decimal(5, 2)", "name": "decimal(5, 2)"})
    [found] = decoder.decode([good]).records
    assert (found["ad"], found["name"]) == (300, 1050)
    refusing = ProtobufMessages(click, fields={"x": "decimal(5, 2)"})
    assert (
        "it is float 0.5, and a decimal is a number or a text"
        in (refusing.decode([ProtobufEncoder(click).encode({"x": 0.5})]).wrong[0])
    )


# descriptors.py: Message types from files and modules.


def test_a_type_is_found_in_a_descriptor_set_or_a_module(tmp_path: Path) -> None:
    name = write_descriptors(tmp_path)
    click = message_class(ProtobufOptions("shop.Click", name), str(tmp_path))
    assert click.DESCRIPTOR.full_name == "shop.Click"
    assert (indexes(click.DESCRIPTOR), indexes(click.DESCRIPTOR.nested_types_by_name["Tag"])) == (
        [1],
        [1, 0],
    )
    assert file_text(click.DESCRIPTOR)
    made = message_class(ProtobufOptions("google.protobuf.timestamp_pb2:Timestamp"), str(tmp_path))
    assert made.DESCRIPTOR.full_name == "google.protobuf.Timestamp"


def test_what_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    name = write_descriptors(tmp_path)
    (tmp_path / "bad.desc").write_bytes(b"\xff")
    for message, descriptor, told in (
        ("shop.Clik", name, "has no message 'shop.Clik'; did you mean 'shop.Click'"),
        ("shop.Click", "no.desc", r"option 'descriptor': cannot read .*no\.desc"),
        ("shop.Click", "bad.desc", "is not a descriptor set; make it with protoc"),
        ("no_such_pb2:Click", "", "option 'message'"),
        ("json:loads", "", "json:loads is not a class of a Protobuf message"),
    ):
        with pytest.raises(ValueError, match=told):
            message_class(ProtobufOptions(message, descriptor), str(tmp_path))
