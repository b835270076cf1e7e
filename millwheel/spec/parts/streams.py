"""The ``streams:`` part: the sources of records, and the properties of each stream."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from millwheel.core.pipeline.spec import DEAD_LETTERS, SourceSpec, StreamSpec
from millwheel.python_objects import OBJECT_NAME
from millwheel.spec.parts.on_error import read_on_error
from millwheel.spec.reading.kinds import Kind, Kinds, read_kind
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.reader import NodeReader, is_expression

FIELDS = ("source", "timestamp", "id", "watermark", "schema", "fields", "on_error")
_ONLY_WITH_SOURCE = ("timestamp", "id", "watermark", "on_error")
_EXAMPLE = "{source: {files: {path: …}}, timestamp: ts}"
_NO_EXPRESSION = "name a field (with its unit: {field: ts, unit: ms}), or a function of yours, module:function"
UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000}  # Fixed: units of timestamps
TYPES = ("int", "float", "str", "bool")
_GENERATOR_TIMESTAMP = "ts"
"""The built-in generator's timestamp field."""


def read_stream(reader: NodeReader, name: str, node: YamlNode, origin: str) -> tuple[StreamSpec, Kind | None]:
    """A stream, and the kind of its source."""
    fields = reader.fields(node, FIELDS, _EXAMPLE)
    _check_stream_name(reader, name, node)
    kind = _source(reader, fields, origin)
    if "source" not in fields:
        _refuse_without_source(reader, fields)
    timestamp, unit, states_unit = _timestamp(reader, node, fields, kind)
    id_field, horizon = _id(reader, fields.get("id"))
    watermark = reader.fields(fields.get("watermark"), ("max_delay", "idle_after", "max_future"), "{max_delay: 10s}")
    spec = StreamSpec(
        name=name,
        source=SourceSpec(kind.name, kind.options) if kind else None,
        timestamp=timestamp,
        timestamp_unit_us=unit,
        states_unit=states_unit,
        id=id_field,
        id_horizon_us=horizon,
        schema=reader.object_name(fields.get("schema"), "records:Click"),
        fields=_fields(reader, fields.get("fields")),
        max_delay_us=reader.duration(watermark.get("max_delay"), 0),
        idle_after_us=reader.duration_or_never(watermark.get("idle_after"), 5_000_000),
        max_future_us=reader.duration_or_never(watermark.get("max_future"), 86_400_000_000),
        on_error=read_on_error(reader, fields.get("on_error")),
        where=reader.where(node),
    )
    return spec, kind


def _check_stream_name(reader: NodeReader, name: str, node: YamlNode) -> None:
    if name == DEAD_LETTERS:
        reader.bad(
            node, f"{DEAD_LETTERS!r} exists in every pipeline; consume it or give it a sink, but do not declare it"
        )
    else:
        reader.check_name(node, name, "stream")


def _source(reader: NodeReader, fields: Mapping[str, YamlNode], origin: str) -> Kind | None:
    if "source" not in fields:
        return None
    from millwheel.sources import BUILT_IN, known_sources

    kind = read_kind(reader, fields["source"], Kinds("source", BUILT_IN, known_sources), origin)
    if kind is not None and kind.name == "injection" and kind.options:
        reader.bad(kind.node, "injection has no options; write source: {injection: {}}")
    return _http(reader, kind) if kind is not None and kind.name == "http" else kind


def _http(reader: NodeReader, kind: Kind) -> Kind:
    """A stream with this source is an injected one, with an HTTP endpoint in front of it."""
    from millwheel.sources.http_options import read_http_options

    try:
        options = msgspec.to_builtins(read_http_options(kind.options))
    except ValueError as error:
        reader.bad(kind.node, str(error))
        options = {}
    return Kind("injection", options, kind.node)


def _refuse_without_source(reader: NodeReader, fields: Mapping[str, YamlNode]) -> None:
    for name in _ONLY_WITH_SOURCE:
        if name in fields:
            reader.bad(
                fields[name],
                f"only a stream with a source has its own {name}; remove it, or add source: {{files: {{path: …}}}}",
            )


def _timestamp(
    reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode], kind: Kind | None
) -> tuple[str, int, bool]:
    """(field or module:function, µs per unit, whether the unit is stated)."""
    given = fields.get("timestamp")
    generated = kind is not None and kind.name == "generator"
    if given is None:
        if generated:
            return _GENERATOR_TIMESTAMP, 1, True
        if "source" in fields:
            reader.missing(node, "timestamp", "name the field with a record's event time: write timestamp: FIELD")
        return "", 1, False
    unit, stated = "us", generated
    if given.is_map:
        inner = reader.fields(given, ("field", "unit"), "{field: ts, unit: ms}")
        unit, stated = reader.choice(inner.get("unit"), UNITS, "us"), generated or "unit" in inner
        if "field" not in inner:
            reader.missing(given, "field", "write for example {field: ts, unit: ms}")
        given = inner.get("field")
    text = reader.text(given, "ts")
    if given is not None and ":" in text and not OBJECT_NAME.fullmatch(text):
        reader.bad(given, f"{text[:80]!r} is neither a field nor module:function")
    elif given is not None and is_expression(text) and not _declares(fields, text):
        reader.bad(given, f"{text[:80]!r} is an expression, and timestamps are not computed here: {_NO_EXPRESSION}")
    return text, UNITS[unit], stated


def _declares(fields: Mapping[str, YamlNode], name: str) -> bool:
    declared = fields.get("fields")
    return declared is not None and isinstance(declared.value, dict) and name in declared.value


def _id(reader: NodeReader, node: YamlNode | None) -> tuple[str, int]:
    """(field, horizon in µs)."""
    default = StreamSpec("").id_horizon_us
    if node is None or not node.is_map:
        return reader.text(node, "event_id"), default
    inner = reader.fields(node, ("field", "horizon"), "{field: event_id, horizon: 1h}")
    if "field" not in inner:
        reader.missing(node, "field", "write for example {field: event_id, horizon: 1h}")
    return reader.text(inner.get("field"), "event_id"), reader.duration(inner.get("horizon"), default, 1)


def _fields(reader: NodeReader, node: YamlNode | None) -> dict[str, str]:
    entries = reader.entries(node, "{ad_id: int, cost: float}")
    return {name: reader.choice(child, TYPES, "str") for name, child in entries.items()}
