"""Message types from files and modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.connect.formats.options import ProtobufOptions
from millwheel.connect.formats.protobuf.descriptors import file_text, indexes, message_class
from tests.fakes.protobuf import write_descriptors


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
        ("shop.Click", "bad.desc", "is no descriptor set; make it with protoc"),
        ("no_such_pb2:Click", "", "option 'message'"),
        ("json:loads", "", "json:loads is no class of a Protobuf message"),
    ):
        with pytest.raises(ValueError, match=told):
            message_class(ProtobufOptions(message, descriptor), str(tmp_path))
