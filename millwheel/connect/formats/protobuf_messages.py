"""Protobuf: message types from a compiled descriptor set or a generated module, and messages read
and written by them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError, Message

from millwheel.connect.formats.base import (
    Decoding,
    MessageDecoder,
    MessageEncoder,
    checked,
    decode_one_by_one,
)
from millwheel.connect.formats.options import ProtobufOptions
from millwheel.connect.formats.protobuf_values import KNOWN_TYPES, MessageReading, MessageWriting
from millwheel.connect.formats.registry import HEADER_BYTES, Registration, Registry, header, split
from millwheel.connect.options import did_you_mean
from millwheel.connect.python_objects import load_object
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.errors import MillwheelError, RecordError


def message_class(options: ProtobufOptions, folder: str) -> Any:
    """The class of ``message``. Raises ValueError when it does not exist."""
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
            f"option 'descriptor': {path} is not a descriptor set; make it with protoc"
            " --include_imports --descriptor_set_out=FILE"
        ) from ex
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)  # in the order of protoc: imported files come first
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(options.message))
    except KeyError:
        names = [name for file in files.file for name in _names(file.package, file.message_type)]
        meant = did_you_mean(options.message, names)
        raise ValueError(
            f"option 'message': {path} has no message {options.message!r}{meant}"
        ) from None
    except TypeError as ex:
        raise ValueError(
            f"option 'descriptor': {path} is incomplete: {ex}; make it with protoc"
            " --include_imports"
        ) from ex


def _names(prefix: str, types: Any) -> list[str]:
    names = []
    for each in types:
        name = f"{prefix}.{each.name}" if prefix else each.name
        names += [name, *_names(name, each.nested_type)]
    return names


def _of_module(name: str, folder: str) -> Any:
    try:
        message_type = load_object(name, folder)
    except MillwheelError as ex:
        raise ValueError(f"option 'message': {ex}") from ex
    if not (isinstance(message_type, type) and issubclass(message_type, Message)):
        raise ValueError(f"option 'message': {name} is not a class of a Protobuf message")
    return message_type


def indexes(descriptor: Any) -> list[int]:
    """The position of a message type in its file: the index of the outermost type, then of the type
    in it, and so on."""
    path: list[int] = []
    while descriptor is not None:
        above = descriptor.containing_type
        siblings = (
            above.nested_types
            if above is not None
            else list(descriptor.file.message_types_by_name.values())
        )
        path.append([each.full_name for each in siblings].index(descriptor.full_name))
        descriptor = above
    return path[::-1]


def file_text(descriptor: Any) -> str:
    """The file of a message type, as a registry takes it: base64 of its serialized form."""
    file_proto = descriptor_pb2.FileDescriptorProto()
    descriptor.file.CopyToProto(file_proto)
    return b64encode(file_proto.SerializeToString()).decode()


_LONGEST_PATH = 32  # of types within types
_MOST_VALUES = 4_000_000  # of a record: some 400 MB of objects


class ProtobufMessages(MessageDecoder):
    """Messages of one type."""

    takes_empty = True

    def __init__(
        self,
        message_type: Any,
        registry: Registry | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self._parse = message_type.FromString
        self._reading = MessageReading(message_type.DESCRIPTOR)
        self._registry = registry
        self._indexes = indexes(message_type.DESCRIPTOR)
        self._name = message_type.DESCRIPTOR.full_name
        self._types = FieldTypes(fields or {})
        self._most_bytes = int(_MOST_VALUES / self._reading.values_a_byte)

    def decode(self, messages: Sequence[bytes]) -> Decoding:
        return checked(
            decode_one_by_one(messages, self._one, (DecodeError, ValueError, RecursionError)),
            self._types,
        )

    def _one(self, message: bytes) -> Any:
        if self._registry is not None:
            message = self._body(message, self._registry)
        try:
            parsed = self._parse(message)
        except DecodeError as ex:
            raise RecordError(f"it is not a Protobuf message {self._name}: {ex}") from ex
        if len(message) > self._most_bytes and _values_in(parsed, _MOST_VALUES) > _MOST_VALUES:
            raise RecordError(
                f"it would become more than {_MOST_VALUES:,} values, of {len(message):,} bytes"
            )
        return self._reading.plain(parsed)

    def _body(self, message: bytes, registry: Registry) -> bytes:
        number = split(message)
        kind = registry.schema(number).kind
        if kind != "PROTOBUF":
            raise RecordError(f"its schema, id {number}, is {kind}, not PROTOBUF")
        path, start = read_indexes(message, HEADER_BYTES)
        if path != self._indexes:
            raise RecordError(
                f"it is the message {path} of its schema's file, and {self._name} is"
                f" {self._indexes}"
            )
        return message[start:]


def _values_in(root: Any, most: int) -> int:
    """The number of values in the dict of a message; counted no further than ``most``."""
    count, waiting = 0, [root]
    while waiting and count <= most:
        message = waiting.pop()
        count += (
            1 if message.DESCRIPTOR.full_name in KNOWN_TYPES else len(message.DESCRIPTOR.fields)
        )
        for field, value in message.ListFields():
            if not field.is_repeated:
                waiting += [value] if field.message_type is not None else []
                continue
            count += len(value)
            if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                waiting += value
            elif (
                field.message_type is not None
                and field.message_type.fields_by_name["value"].message_type is not None
            ):
                waiting += value.values()
    return count


class ProtobufEncoder(MessageEncoder):
    """Rows as messages of one type."""

    def __init__(
        self, message_type: Any, strict: bool = True, registration: Registration | None = None
    ) -> None:
        self._writing = MessageWriting(message_type, strict)
        self._registration = registration
        self._index_bytes = write_indexes(indexes(message_type.DESCRIPTOR))

    def encode(self, row: Mapping[str, Any]) -> bytes:
        try:
            data: bytes = self._writing.message(row).SerializeToString(deterministic=True)
            return data
        except EncodeError as ex:
            raise RecordError(f"it is not a whole message: {ex}") from ex

    def header(self) -> bytes:
        return (
            b""
            if self._registration is None
            else header(self._registration.number()) + self._index_bytes
        )

    def check(self) -> None:
        if self._registration is not None:
            self._registration.check()


def write_indexes(path: Sequence[int]) -> bytes:
    """The path of a message type in Confluent's format: its length and its indexes as zigzag
    numbers; a single zero byte for the first type of a file."""
    if list(path) == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(path), *path))


def read_indexes(message: bytes, start: int) -> tuple[list[int], int]:
    """The path that begins at ``start``, and the offset behind it. Raises RecordError where it is
    damaged."""
    count, start = _number(message, start)
    if count == 0:
        return [0], start
    if not 0 < count <= _LONGEST_PATH:
        raise RecordError(f"it names a type within {count} others")
    path = []
    for _ in range(count):
        number, start = _number(message, start)
        path.append(number)
    return path, start


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _number(message: bytes, start: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if start >= len(message):
            break
        byte = message[start]
        start += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), start
    raise RecordError("it ends within the indexes of its message type")
