"""A message type as protoc compiles it, without protoc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

_F = descriptor_pb2.FieldDescriptorProto
_SCALARS: dict[str, Any] = {
    "int64": _F.TYPE_INT64,
    "string": _F.TYPE_STRING,
    "double": _F.TYPE_DOUBLE,
}
_SCALARS |= {"bool": _F.TYPE_BOOL, "bytes": _F.TYPE_BYTES, "int32": _F.TYPE_INT32}


def descriptor_set() -> descriptor_pb2.FileDescriptorSet:
    """``shop.Other`` (empty), ``shop.Click`` with fields of all sorts, and what they import."""
    found = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, duration_pb2, struct_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(found.file.add())
    file = found.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(each.name for each in found.file[:4])
    file.message_type.add(name="Other")
    click = file.message_type.add(name="Click")
    inner = click.nested_type.add(name="Tag")
    inner.field.add(name="text", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    inner.field.add(
        name="within",
        number=2,
        type=_F.TYPE_MESSAGE,
        type_name=".shop.Click.Tag",
        label=_F.LABEL_OPTIONAL,
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="VIEW", number=0)
    kind.value.add(name="BUY", number=1)
    for number, (name, scalar) in enumerate(
        {"ad": "int64", "name": "string", "x": "double", "ok": "bool"}.items(), 1
    ):
        click.field.add(name=name, number=number, type=_SCALARS[scalar], label=_F.LABEL_OPTIONAL)
    click.field.add(name="raw", number=5, type=_F.TYPE_BYTES, label=_F.LABEL_OPTIONAL)
    click.field.add(
        name="kind", number=6, type=_F.TYPE_ENUM, type_name=".shop.Kind", label=_F.LABEL_OPTIONAL
    )
    click.field.add(name="numbers", number=7, type=_F.TYPE_INT32, label=_F.LABEL_REPEATED)
    click.field.add(
        name="tag",
        number=8,
        type=_F.TYPE_MESSAGE,
        type_name=".shop.Click.Tag",
        label=_F.LABEL_OPTIONAL,
    )
    click.field.add(
        name="tags",
        number=9,
        type=_F.TYPE_MESSAGE,
        type_name=".shop.Click.Tag",
        label=_F.LABEL_REPEATED,
    )
    for number, name in enumerate(("Timestamp", "Duration", "Struct", "Int64Value"), 10):
        type_name = f".google.protobuf.{name}"
        click.field.add(
            name=name.lower(),
            number=number,
            type=_F.TYPE_MESSAGE,
            type_name=type_name,
            label=_F.LABEL_OPTIONAL,
        )
    entry = click.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=_F.TYPE_INT64, label=_F.LABEL_OPTIONAL)
    click.field.add(
        name="counts",
        number=14,
        type=_F.TYPE_MESSAGE,
        type_name=".shop.Click.CountsEntry",
        label=_F.LABEL_REPEATED,
    )
    return found


def write_descriptors(folder: Path) -> str:
    """The name of a file in ``folder`` with them."""
    (folder / "shop.desc").write_bytes(descriptor_set().SerializeToString())
    return "shop.desc"


FULL = {
    "ad": 7,
    "name": "é",
    "x": 1.5,
    "ok": True,
    "raw": b"\xff",
    "kind": "BUY",
    "numbers": [1, -2],
    "tag": {"text": "a", "within": {"text": "b", "within": None}},
    "tags": [{"text": "c", "within": None}],
    "timestamp": -1_500_000,
    "duration": -2_500_000,
    "struct": {"a": [1.0, None, "x", True], "b": {"c": 2.0}},
    "int64value": 0,
    "counts": {"a": 1, "b": 2},
}
"""A row with all of them."""
