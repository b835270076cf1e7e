"""Protobuf messages to plain values, and back.

Field names are those of the ``.proto`` file. Enums are their names, ``Timestamp`` and ``Duration``
µs, wrappers, ``Value``, ``Struct`` and ``ListValue`` their contents. A field with presence (a
message, ``optional``, ``oneof``) is None when it is not set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Fd

from millwheel.errors import RecordError

Read = Callable[[Any], Any]
_MICRO = 1_000_000  # Fixed: µs of a second


class MessageReading:
    """Messages of one type to dicts. ``values_a_byte`` is the most values of a dict that a byte of
    a message can make: a message within needs two bytes, and becomes a dict with all of its
    fields."""

    def __init__(self, descriptor: Any) -> None:
        self._made: dict[str, Read] = {}
        self.plain: Read = self._message(descriptor)
        self.values_a_byte = (
            max([2, *(len(each.fields) for each in inner_messages(descriptor))]) / 2
        )

    def _message(self, descriptor: Any) -> Read:
        name = descriptor.full_name
        if name in KNOWN_TYPES:
            return KNOWN_TYPES[name]
        if name not in self._made:
            # a recursive type: looked up when called
            self._made[name] = lambda message: self._made[name](message)
            self._made[name] = self._fields(descriptor)
        return self._made[name]

    def _fields(self, descriptor: Any) -> Read:
        parts = [(field.name, self._field(field)) for field in descriptor.fields]
        return lambda message: {name: of(message) for name, of in parts}

    def _field(self, field: Any) -> Read:
        name = field.name
        if _is_map(field):
            entry = field.message_type.fields_by_name["value"]
            one = self._single(entry)
            return lambda message: {
                _text_key(key): one(value) for key, value in getattr(message, name).items()
            }
        one = self._single(field)
        if field.is_repeated:
            return lambda message: [one(value) for value in getattr(message, name)]
        if field.has_presence:
            return lambda message: one(getattr(message, name)) if message.HasField(name) else None
        return lambda message: one(getattr(message, name))

    def _single(self, field: Any) -> Read:
        if field.cpp_type == Fd.CPPTYPE_MESSAGE:
            return self._message(field.message_type)
        if field.cpp_type == Fd.CPPTYPE_ENUM:
            names = {
                number: value.name for number, value in field.enum_type.values_by_number.items()
            }
            return lambda value: names.get(value, value)
        return _same


def inner_messages(descriptor: Any) -> list[Any]:
    """The types of all messages within a message."""
    by_name: dict[str, Any] = {}
    waiting = [descriptor]
    while waiting:
        for field in waiting.pop().fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in by_name:
                by_name[inner.full_name] = inner
                waiting.append(inner)
    return list(by_name.values())


class MessageWriting:
    """Rows to messages of one type. ``strict`` refuses fields that the type does not have."""

    def __init__(self, message_type: Any, strict: bool) -> None:
        self._class = message_type
        self._strict = strict

    def message(self, row: Any) -> Any:
        """A message. Raises RecordError, with the path of the field, for a row that does not
        fit."""
        message = self._class()
        try:
            self._fill(message, row, "")
        except RecursionError:
            raise RecordError("it nests too deeply") from None
        return message

    def _fill(self, message: Any, value: Any, path: str) -> None:
        write = _WRITE_KNOWN.get(message.DESCRIPTOR.full_name)
        if write is not None:
            try:
                write(message, value)
            except (TypeError, ValueError, AttributeError, OverflowError):
                raise _wrong(value, path, message.DESCRIPTOR.full_name) from None
            return
        if not isinstance(value, Mapping):
            raise _wrong(value, path, f"a message {message.DESCRIPTOR.full_name}")
        fields = message.DESCRIPTOR.fields_by_name
        for name, inner in value.items():
            where = f"{path}.{name}" if path else str(name)
            field = fields.get(name) if isinstance(name, str) else None
            if field is None:
                if self._strict:
                    raise RecordError(
                        f"field {where!r} is not in the message {message.DESCRIPTOR.full_name}; add"
                        " it there, or write unknown_fields: ignore"
                    )
            elif inner is not None:
                self._set(message, field, inner, where)

    def _set(self, message: Any, field: Any, value: Any, path: str) -> None:
        try:
            if _is_map(field):
                self._set_map(getattr(message, field.name), field, value, path)
            elif field.is_repeated:
                self._set_all(getattr(message, field.name), field, value, path)
            elif field.cpp_type == Fd.CPPTYPE_MESSAGE:
                inner = getattr(message, field.name)
                inner.SetInParent()
                self._fill(inner, value, path)
            else:
                setattr(message, field.name, _scalar(field, value))
        except (TypeError, ValueError, AttributeError, OverflowError, KeyError):
            raise _wrong(value, path, _type_name(field)) from None

    def _set_map(self, target: Any, field: Any, value: Any, path: str) -> None:
        inner = field.message_type.fields_by_name["value"]
        key_of = _KEY.get(field.message_type.fields_by_name["key"].cpp_type, int)
        for name, each in value.items():
            where, key = f"{path}.{name}", key_of(name) if isinstance(name, str) else name
            if inner.cpp_type == Fd.CPPTYPE_MESSAGE:
                self._fill(target[key], each, where)
            else:
                target[key] = _scalar(inner, each)

    def _set_all(self, target: Any, field: Any, value: Any, path: str) -> None:
        if not isinstance(value, (list, tuple)):
            raise TypeError
        for index, each in enumerate(value):
            if field.cpp_type == Fd.CPPTYPE_MESSAGE:
                self._fill(target.add(), each, f"{path}[{index}]")
            else:
                target.append(_scalar(field, each))


def _same(value: Any) -> Any:
    return value


def _is_map(field: Any) -> bool:
    return field.cpp_type == Fd.CPPTYPE_MESSAGE and bool(field.message_type.GetOptions().map_entry)


def _text_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _boolean_key(text: str) -> bool:
    return {"true": True, "false": False}[text]


_KEY: dict[int, Callable[[str], Any]] = {Fd.CPPTYPE_STRING: str, Fd.CPPTYPE_BOOL: _boolean_key}


def _scalar(field: Any, value: Any) -> Any:
    """The value of a scalar field. Raises TypeError for values that Protobuf would convert
    silently."""
    if isinstance(value, Decimal):
        return _of_decimal(field, value)
    if field.cpp_type == Fd.CPPTYPE_ENUM and isinstance(value, str):
        return field.enum_type.values_by_name[value].number
    if isinstance(value, bool) != (field.cpp_type == Fd.CPPTYPE_BOOL):
        raise TypeError
    if field.type == Fd.TYPE_BYTES and not isinstance(value, bytes):
        raise TypeError
    if field.type == Fd.TYPE_STRING and not isinstance(value, str):
        raise TypeError
    return value


def _of_decimal(field: Any, value: Decimal) -> Any:
    """A decimal in a field that holds all of its digits."""
    if field.type == Fd.TYPE_STRING:
        return str(value)
    if field.cpp_type in _WHOLE and value == int(value):
        return int(value)
    raise TypeError


_WHOLE = (Fd.CPPTYPE_INT32, Fd.CPPTYPE_INT64, Fd.CPPTYPE_UINT32, Fd.CPPTYPE_UINT64)


def _type_name(field: Any) -> str:
    if field.cpp_type == Fd.CPPTYPE_ENUM:
        return f"one of {', '.join(field.enum_type.values_by_name)[:200]}"
    if field.cpp_type == Fd.CPPTYPE_MESSAGE:
        return "a map" if _is_map(field) else str(field.message_type.full_name)
    return _NAMES.get(field.type, "another type")


_NAMES = {
    getattr(Fd, f"TYPE_{name.upper()}"): name
    for name in """double float int64 uint64 int32 fixed64 fixed32 bool string bytes uint32
    sfixed32 sfixed64 sint32 sint64""".split()  # noqa: SIM905
}


def _wrong(value: Any, path: str, expected: str) -> RecordError:
    description = f"{type(value).__name__} {value!r}"[:80]
    return RecordError(
        f"field {path!r} is {description}, but the Protobuf message requires {expected}"
    )


def _microseconds(message: Any) -> int:
    whole: int = message.seconds * _MICRO + message.nanos // 1_000
    return whole


def _value(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    content = getattr(message, kind)
    return {"struct_value": _struct, "list_value": _list}.get(kind, _same)(content)


def _struct(message: Any) -> Any:
    return {name: _value(value) for name, value in message.fields.items()}


def _list(message: Any) -> Any:
    return [_value(value) for value in message.values]


def _any(message: Any) -> Any:
    return {"type_url": message.type_url, "value": message.value}


def _held(message: Any) -> Any:
    return message.value


_KINDS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = [f"google.protobuf.{name}Value" for name in _KINDS]
KNOWN_TYPES: dict[str, Read] = {
    "google.protobuf.Timestamp": _microseconds,
    "google.protobuf.Duration": _microseconds,
    "google.protobuf.Value": _value,
    "google.protobuf.Struct": _struct,
    "google.protobuf.ListValue": _list,
    "google.protobuf.Any": _any,
    **dict.fromkeys(_WRAPPERS, _held),
}


def _set_time(message: Any, value: Any) -> None:
    if type(value) is not int:
        raise TypeError
    message.seconds, rest = divmod(value, _MICRO)
    message.nanos = rest * 1_000


def _set_span(message: Any, value: Any) -> None:
    if type(value) is not int:
        raise TypeError
    seconds, rest = divmod(abs(value), _MICRO)
    sign = -1 if value < 0 else 1
    message.seconds, message.nanos = sign * seconds, sign * rest * 1_000


def _set_value(message: Any, value: Any) -> None:
    if value is None:
        message.null_value = 0
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, (int, float)):
        message.number_value = value
    elif isinstance(value, str):
        message.string_value = value
    elif isinstance(value, Mapping):
        message.struct_value.SetInParent()
        _set_struct(message.struct_value, value)
    elif isinstance(value, (list, tuple)):
        message.list_value.SetInParent()
        _set_list(message.list_value, value)
    else:
        raise TypeError


def _set_struct(message: Any, value: Any) -> None:
    for name, each in value.items():
        _set_value(message.fields[name], each)


def _set_list(message: Any, value: Any) -> None:
    for each in value:
        _set_value(message.values.add(), each)


def _set_any(message: Any, value: Any) -> None:
    message.type_url, message.value = value["type_url"], value["value"]


def _set_held(message: Any, value: Any) -> None:
    message.value = _scalar(message.DESCRIPTOR.fields_by_name["value"], value)


_WRITE_KNOWN: dict[str, Callable[[Any, Any], None]] = {
    "google.protobuf.Timestamp": _set_time,
    "google.protobuf.Duration": _set_span,
    "google.protobuf.Value": _set_value,
    "google.protobuf.Struct": _set_struct,
    "google.protobuf.ListValue": _set_list,
    "google.protobuf.Any": _set_any,
    **dict.fromkeys(_WRAPPERS, _set_held),
}
