"""Small schemas that the parts of a pipeline file are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millwheel.connect.options import plain
from millwheel.language.spec.reading.parts import (
    Anything,
    ByteSize,
    Choice,
    Duration,
    Entries,
    ExpressionText,
    FilePart,
    Flag,
    Items,
    Kind,
    NameText,
    Number,
    ObjectName,
    Own,
    Percent,
    Share,
    Short,
    Text,
)

Schema = dict[str, Any]

PARAMETER: Schema = {"$ref": "#/$defs/parameter"}
OBJECT_NAME: Schema = {"$ref": "#/$defs/object_name"}
EXPRESSION: Schema = {"$ref": "#/$defs/expression"}
DURATION: Schema = {"$ref": "#/$defs/duration"}
NAME: Schema = {"$ref": "#/$defs/name"}
ANY: Schema = {}
TEXT: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"anyOf": [{"type": "boolean"}, PARAMETER]}
SHARE: Schema = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, PARAMETER]}
SIZE: Schema = {"type": "string", "description": "a number and a unit, such as 64kB or 16MiB"}

PERCENT: Schema = {"type": "string", "pattern": r"%$|\$\{"}

WORDS: Mapping[str, Schema] = {
    "parameter": {
        "type": "string",
        "pattern": r"\$\{",
        "description": "${NAME}, ${NAME:-default} or ${secret:NAME}",
    },
    "object_name": {
        "type": "string",
        "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$|\$\{",
        "description": "module:name of something beside the pipeline, or installed",
    },
    "expression": {
        "type": ["string", "number", "boolean"],
        "description": "an expression over a record's fields, such as status >= 500",
    },
    "duration": {
        "type": "string",
        "pattern": r"^\s*[+-]?\d|never|\$\{",
        "description": "a number and a unit, such as 500ms, 10s, 2m, 1h30m or 7d",
    },
    "name": {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,64}$|\$\{"},
}


def number(least: int, most: int) -> Schema:
    """A whole number within bounds."""
    return {"anyOf": [{"type": "integer", "minimum": least, "maximum": most}, PARAMETER]}


def choice(choices: Iterable[str]) -> Schema:
    """One of a few words."""
    return {"anyOf": [{"enum": list(choices)}, PARAMETER]}


def fields(properties: Mapping[str, Schema], needed: Sequence[str] = (), text: str = "") -> Schema:
    """A map with these fields and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
        **({"required": list(needed)} if needed else {}),
        **({"description": text} if text else {}),
    }


def entries(value: Schema, names: Schema | None = None, text: str = "") -> Schema:
    """A map from names to values of one kind."""
    return {
        "type": "object",
        "additionalProperties": value,
        **({"propertyNames": names} if names else {}),
        **({"description": text} if text else {}),
    }


def one_or_more(item: Schema) -> Schema:
    """One, or a list of them."""
    return {"anyOf": [item, {"type": "array", "items": item}]}


def either(*schemas: Schema) -> Schema:
    """Any of them."""
    return {"anyOf": [*schemas]}


def exactly_one(properties: Mapping[str, Schema]) -> Schema:
    """A map with one entry, one of these."""
    return {**fields(properties), "minProperties": 1, "maxProperties": 1}


def part(declared: FilePart) -> Schema:
    """A map with the fields of a part and no others."""
    needed = [name for name, each in declared.fields.items() if each.needed]
    return fields(fields_of(declared), needed)


def fields_of(declared: FilePart) -> dict[str, Schema]:
    """The schemas of a part's fields, each with its sentence."""
    return {
        name: {
            **_schema_of(each.kind),
            **({"description": sentence(each.text)} if each.text else {}),
        }
        for name, each in declared.fields.items()
    }


def sentence(text: str) -> str:
    """A sentence of a declaration, as an editor shows it."""
    return plain(text).replace("`", "")


def _schema_of(kind: Kind) -> Schema:
    match kind:
        case Number(least, most):
            return number(least, most)
        case Choice(words):
            return choice(words)
        case Text(_, pattern):
            return {"type": "string", "pattern": pattern} if pattern else TEXT
        case Items(each):
            return one_or_more(_schema_of(each))
        case Entries(each, _, named):
            return entries(_schema_of(each), NAME if named else None)
        case Short(name, declared):
            return either(_schema_of(declared.fields[name].kind), part(declared))
        case Own(shapes):
            schemas = [_shape(shape) for shape in shapes]
            return schemas[0] if len(schemas) == 1 else either(*schemas)
        case FilePart():
            return part(kind)
    return _SIMPLE[type(kind)]


def _shape(shape: Kind | str | None) -> Schema:
    if shape is None:
        return {"type": "null"}
    return {"$ref": f"#/$defs/{shape}"} if isinstance(shape, str) else _schema_of(shape)


_SIMPLE: Mapping[type, Schema] = {
    Anything: ANY,
    ByteSize: SIZE,
    Duration: DURATION,
    ExpressionText: EXPRESSION,
    Flag: FLAG,
    NameText: NAME,
    ObjectName: OBJECT_NAME,
    Percent: PERCENT,
    Share: SHARE,
}
