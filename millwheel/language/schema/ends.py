"""Sources, sinks and lookups: their options are frozen structs, from which msgspec makes
schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec

from millwheel.connect.built_in import Connector
from millwheel.connect.options import Option, options_of
from millwheel.language.schema.words import (
    PARAMETER,
    Schema,
    choice,
    either,
    exactly_one,
    sentence,
)


def end(
    connectors: Mapping[str, Connector], definitions: dict[str, Schema], more: Sequence[str] = ()
) -> Schema:
    """One kind with its options, or a kind by its name alone. ``more`` are kinds of installed
    packages, which have any options. Structs go into ``definitions``, by name."""
    kinds: dict[str, Schema] = {name: {"type": ["object", "null"]} for name in more}
    for kind, own in connectors.items():
        form = own.form()
        if form is None:
            kinds[kind] = {"type": ["object", "null"], "maxProperties": 0}
            continue
        kinds[kind] = _options(form, definitions)
    return {"anyOf": [exactly_one(kinds), {"enum": [*kinds]}]}


def _options(form: type[msgspec.Struct], definitions: dict[str, Schema]) -> Schema:
    """The options of a kind. They may be empty if it needs none."""
    needs = any(each.required for each in msgspec.structs.fields(form))
    return (
        _struct(form, definitions)
        if needs
        else {"anyOf": [_struct(form, definitions), {"type": "null"}]}
    )


def _struct(form: type[msgspec.Struct], definitions: dict[str, Schema]) -> Schema:
    (reference,), components = msgspec.json.schema_components([form])
    for name, schema in components.items():
        definitions[name] = _open(schema)
    for each in _structs_in(form):
        properties = definitions[each.__name__]["properties"]
        for name, option in options_of(each).items():
            properties[name] = _declared(properties[name], option, definitions)
    return reference


def _structs_in(declared: Any) -> Iterator[type[msgspec.Struct]]:
    """The structs that a type consists of."""
    if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        yield declared
        for field in msgspec.structs.fields(declared):
            yield from _structs_in(field.type)
    for inside in get_args(declared):
        yield from _structs_in(inside)


def _declared(schema: Schema, option: Option, definitions: dict[str, Schema]) -> Schema:
    """The schema of an option, with its choices and its sentence."""
    if option.forms:
        inner = {each: _options(option.forms[each], definitions) for each in option.choices}
        schema = {**schema, "anyOf": [exactly_one(inner)]}
    if option.choices:
        schema = _chosen(schema, option.choices)
    return {**schema, "description": sentence(option.text)}


def _chosen(schema: Schema, choices: Sequence[str]) -> Schema:
    """The same schema, in which a text is one of ``choices``."""
    rest = {name: value for name, value in schema.items() if name not in ("type", "anyOf")}
    others = [each for each in schema.get("anyOf", ()) if each != {"type": "string"}]
    return {**either(*choice(choices)["anyOf"], *others), **rest}


def _open(schema: Any) -> Any:
    """The same schema, extended so that numbers and flags may be parameters, and any value may be
    empty."""
    if isinstance(schema, list):
        return [_open(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "properties" in schema:
        opened = {name: _open(value) for name, value in schema["properties"].items()}
        described = {**schema, "properties": opened, "additionalProperties": False}
        described["description"] = _plain(schema.get("description", ""))
        return described
    if schema.get("type") in ("integer", "number", "boolean"):
        rest = {name: value for name, value in schema.items() if name == "default"}
        return {"anyOf": [{k: v for k, v in schema.items() if k != "default"}, PARAMETER], **rest}
    return {name: value if name == "default" else _open(value) for name, value in schema.items()}


def _plain(text: str) -> str:
    """A docstring as an editor shows it."""
    text = re.sub(r":class:`\.*(\w+)`", r"\1", text)
    return " ".join(text.replace("``", "").split())
