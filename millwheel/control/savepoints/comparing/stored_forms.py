"""What a state stores for values of its type: the form of their bytes, as plain data beside the
state.

JSON schemas do not tell it: they have no order of fields, no types of keys, and call several things
a string that are stored differently. A form is a list whose first part names its kind; a class that
contains itself is a reference to a definition.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from types import FunctionType
from typing import Any

from msgspec import NODEFAULT, inspect

Form = list[Any]


class _Forms:
    """Makes the form of one type, with the definitions of the classes in it."""

    def __init__(self) -> None:
        self.definitions: dict[str, Form] = {}
        self._named: dict[type, str] = {}

    def of(self, kind: inspect.Type) -> Form:
        """The form of a type that msgspec knows."""
        name = type(kind).__name__
        make = _MADE.get(name)
        if make is not None:
            return make(self, kind)
        return [_SCALARS[name], _limits(kind)] if name in _SCALARS else ["python", repr(kind)]

    def defined(self, kind: Any, make: Callable[[], Form]) -> Form:
        """A reference to the form of a class."""
        name = self._named.get(kind.cls)
        if name is None:
            name = self._named[kind.cls] = f"{kind.cls.__qualname__}{len(self._named)}"
            self.definitions[name] = make()
        return ["ref", name]


def stored_form(of: Any) -> dict[str, Any]:
    """The form of a type, with definitions, or its Python name if msgspec does not know it."""
    forms = _Forms()
    try:
        form = forms.of(inspect.type_info(of))
    # names that cannot be resolved, types that msgspec does not know; TypeError for most
    except Exception:
        form = ["python", repr(of)]
    return {"form": form, "definitions": forms.definitions}


_SCALARS = {
    "AnyType": "anything",
    "RawType": "raw bytes",
    "NoneType": "null",
    "BoolType": "boolean",
    "IntType": "integer",
    "FloatType": "number",
    "StrType": "text",
    "BytesType": "bytes",
    "ByteArrayType": "bytes",
    "MemoryViewType": "bytes",
    "DateTimeType": "datetime",
    "TimeType": "time",
    "DateType": "date",
    "TimeDeltaType": "duration",
    "UUIDType": "UUID",
    "DecimalType": "decimal",
    "ExtType": "extension",
}
_LIMITS = frozenset(
    ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
)


def _limits(kind: inspect.Type) -> dict[str, Any]:
    limits = {name: getattr(kind, name) for name in kind.__struct_fields__ if name in _LIMITS}
    return {name: limit for name, limit in limits.items() if limit is not None}


def _collection(name: str) -> Callable[[_Forms, Any], Form]:
    return lambda forms, kind: [name, _limits(kind), forms.of(kind.item_type)]


def _fields(forms: _Forms, kind: Any) -> list[list[Any]]:
    """Name, stored name, form, and whether it must be there; of each field, in order."""
    return [
        [each.name, each.encode_name, forms.of(each.type), bool(each.required)]
        for each in kind.fields
    ]


def _record(forms: _Forms, kind: Any) -> Form:
    """A class whose fields are stored by name, or one whose fields are stored by position."""
    if isinstance(kind, inspect.StructType):
        omits = kind.cls.__struct_config__.omit_defaults and not kind.array_like
        more = {
            "tag": [kind.tag_field, kind.tag],
            "closed": kind.forbid_unknown_fields,
            "omits": omits,
        }
        more["defaults"] = {
            each.encode_name: _default(each) for each in kind.fields if not each.required
        }
        return forms.defined(
            kind, lambda: ["positions" if kind.array_like else "fields", _fields(forms, kind), more]
        )
    if isinstance(kind, inspect.NamedTupleType):
        return forms.defined(kind, lambda: ["positions", _fields(forms, kind), {"closed": True}])
    return forms.defined(kind, lambda: ["fields", _fields(forms, kind), {}])


def _default(field: inspect.Field) -> str:
    """In words that are the same in every process."""
    default = field.default if field.default is not NODEFAULT else field.default_factory
    return (
        default.__qualname__
        if isinstance(default, (type, FunctionType))
        else re.sub(" at 0x[0-9a-f]+", "", repr(default))
    )


def _enum(forms: _Forms, kind: Any) -> Form:
    members: type[Enum] = kind.cls
    return ["enum", [[repr(each.value), each.name] for each in members]]


_MADE: dict[str, Callable[[_Forms, Any], Form]] = {
    "ListType": _collection("list"),
    "VarTupleType": _collection("tuple"),
    "SetType": _collection("set"),
    "FrozenSetType": _collection("set"),
    "CollectionType": _collection("list"),
    "TupleType": lambda forms, kind: ["items", [forms.of(each) for each in kind.item_types]],
    "DictType": lambda forms, kind: [
        "map",
        _limits(kind),
        forms.of(kind.key_type),
        forms.of(kind.value_type),
    ],
    "FrozenDictType": lambda forms, kind: [
        "map",
        _limits(kind),
        forms.of(kind.key_type),
        forms.of(kind.value_type),
    ],
    "StructType": _record,
    "DataclassType": _record,
    "TypedDictType": _record,
    "NamedTupleType": _record,
    "EnumType": _enum,
    "LiteralType": lambda forms, kind: ["literal", sorted(map(repr, kind.values))],
    "UnionType": lambda forms, kind: ["union", [forms.of(each) for each in kind.types]],
    "Metadata": lambda forms, kind: forms.of(kind.type),
}
