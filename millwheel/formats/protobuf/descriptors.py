"""Message types: from a compiled descriptor set, or from a module that protoc has made."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from millwheel.errors import MillwheelError
from millwheel.formats.options import ProtobufOptions
from millwheel.options import did_you_mean
from millwheel.spec.loading import load_object


def message_class(options: ProtobufOptions, folder: str) -> Any:
    """The class of ``message``. ValueError, with a sentence, when there is none."""
    if not options.descriptor:
        return _of_module(options.message, folder)
    path = Path(folder, options.descriptor)
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(path.read_bytes())
    except OSError as ex:
        raise ValueError(f"option 'descriptor': cannot read {path}: {ex.strerror or ex}") from ex
    except DecodeError as ex:
        raise ValueError(
            f"option 'descriptor': {path} is no descriptor set; make it with protoc --include_imports "
            "--descriptor_set_out=FILE"
        ) from ex
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)  # in the order of protoc: what is imported comes first
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(options.message))
    except KeyError:
        known = [name for file in files.file for name in _names(file.package, file.message_type)]
        meant = did_you_mean(options.message, known)
        raise ValueError(f"option 'message': {path} has no message {options.message!r}{meant}") from None
    except TypeError as ex:
        raise ValueError(
            f"option 'descriptor': {path} is incomplete: {ex}; make it with protoc --include_imports"
        ) from ex


def _names(prefix: str, types: Any) -> list[str]:
    found = []
    for each in types:
        name = f"{prefix}.{each.name}" if prefix else each.name
        found += [name, *_names(name, each.nested_type)]
    return found


def _of_module(name: str, folder: str) -> Any:
    try:
        found = load_object(name, folder)
    except MillwheelError as ex:
        raise ValueError(f"option 'message': {ex}") from ex
    if not (isinstance(found, type) and issubclass(found, Message)):
        raise ValueError(f"option 'message': {name} is no class of a Protobuf message")
    return found


def indexes(descriptor: Any) -> list[int]:
    """Where a message type stands in its file: its index, that of the type within, and so on."""
    path: list[int] = []
    while descriptor is not None:
        above = descriptor.containing_type
        siblings = above.nested_types if above is not None else list(descriptor.file.message_types_by_name.values())
        path.append([each.full_name for each in siblings].index(descriptor.full_name))
        descriptor = above
    return path[::-1]


def file_text(descriptor: Any) -> str:
    """The file of a message type, as a registry takes it: base64 of its serialized form."""
    made = descriptor_pb2.FileDescriptorProto()
    descriptor.file.CopyToProto(made)
    return b64encode(made.SerializeToString()).decode()
