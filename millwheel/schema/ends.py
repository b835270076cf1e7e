"""Sources, sinks and lookups: their options are frozen structs, from which msgspec makes schemas."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from millwheel.connectors.kafka.sink_options import KafkaSinkOptions
from millwheel.connectors.kafka.source_options import KafkaSourceOptions
from millwheel.connectors.postgres.lookup import PostgresLookupOptions
from millwheel.connectors.postgres.sink_options import PostgresSinkOptions
from millwheel.connectors.postgres.source_options import PostgresSourceOptions
from millwheel.connectors.redis.lookup import RedisLookupOptions
from millwheel.connectors.redis.sink_options import RedisSinkOptions
from millwheel.connectors.tables.sink import DeltaSinkOptions, IcebergSinkOptions
from millwheel.schema.words import PARAMETER, Schema, exactly_one
from millwheel.sinks.files.sink import FilesSinkOptions
from millwheel.sinks.stdout import StdoutOptions
from millwheel.sources.files.source import FilesSourceOptions
from millwheel.sources.generator import GeneratorOptions
from millwheel.sources.http_options import HttpOptions

Forms = Mapping[str, type[msgspec.Struct] | None]

SOURCE_FORMS: Forms = {
    "files": FilesSourceOptions,
    "generator": GeneratorOptions,
    "http": HttpOptions,
    "injection": None,
    "kafka": KafkaSourceOptions,
    "postgres": PostgresSourceOptions,
}
SINK_FORMS: Forms = {
    "delta": DeltaSinkOptions,
    "files": FilesSinkOptions,
    "iceberg": IcebergSinkOptions,
    "kafka": KafkaSinkOptions,
    "postgres": PostgresSinkOptions,
    "redis": RedisSinkOptions,
    "stdout": StdoutOptions,
}
LOOKUP_FORMS: Forms = {"postgres": PostgresLookupOptions, "redis": RedisLookupOptions}


def end(forms: Forms, found: dict[str, Schema], more: Sequence[str] = ()) -> Schema:
    """One kind with its options, or a kind by its name alone. ``more`` are kinds of installed packages, which have any
    options. Structs go into ``found``, by name."""
    kinds: dict[str, Schema] = {name: {"type": ["object", "null"]} for name in more}
    for kind, form in forms.items():
        if form is None:
            kinds[kind] = {"type": ["object", "null"], "maxProperties": 0}
            continue
        needs = any(each.required for each in msgspec.structs.fields(form))
        kinds[kind] = _struct(form, found) if needs else {"anyOf": [_struct(form, found), {"type": "null"}]}
    return {"anyOf": [exactly_one(kinds), {"enum": [*kinds]}]}


def _struct(form: type[msgspec.Struct], found: dict[str, Schema]) -> Schema:
    (reference,), components = msgspec.json.schema_components([form])
    for name, schema in components.items():
        found[name] = _open(schema)
    return reference


def _open(schema: Any) -> Any:
    """The same schema, extended so that numbers and flags may be parameters, and any value may be empty."""
    if isinstance(schema, list):
        return [_open(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "properties" in schema:
        opened = {name: _open(value) for name, value in schema["properties"].items()}
        found = {**schema, "properties": opened, "additionalProperties": False}
        found["description"] = _plain(schema.get("description", ""))
        return found
    if schema.get("type") in ("integer", "number", "boolean"):
        rest = {name: value for name, value in schema.items() if name == "default"}
        return {"anyOf": [{k: v for k, v in schema.items() if k != "default"}, PARAMETER], **rest}
    return {name: value if name == "default" else _open(value) for name, value in schema.items()}


def _plain(text: str) -> str:
    """A docstring as an editor shows it."""
    text = re.sub(r":class:`\.*(\w+)`", r"\1", text)
    return " ".join(text.replace("``", "").split())
