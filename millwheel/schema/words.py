"""Small schemas that the parts of a pipeline file are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Schema = dict[str, Any]

PARAMETER: Schema = {"$ref": "#/$defs/parameter"}
OBJECT_NAME: Schema = {"$ref": "#/$defs/object_name"}
EXPRESSION: Schema = {"$ref": "#/$defs/expression"}
DURATION: Schema = {"$ref": "#/$defs/duration"}
NAME: Schema = {"$ref": "#/$defs/name"}
ANY: Schema = {}
TEXT: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"anyOf": [{"type": "boolean"}, PARAMETER]}

WORDS: Mapping[str, Schema] = {
    "parameter": {"type": "string", "pattern": r"\$\{", "description": "${NAME}, ${NAME:-default} or ${secret:NAME}"},
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


def choice(known: Iterable[str]) -> Schema:
    """One of a few words."""
    return {"anyOf": [{"enum": list(known)}, PARAMETER]}


def fields(known: Mapping[str, Schema], needed: Sequence[str] = (), text: str = "") -> Schema:
    """A map with these fields and no others."""
    return {
        "type": "object",
        "properties": dict(known),
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


def exactly_one(known: Mapping[str, Schema]) -> Schema:
    """A map with one entry, one of these."""
    return {**fields(known), "minProperties": 1, "maxProperties": 1}
