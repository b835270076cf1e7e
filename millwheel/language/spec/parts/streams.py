"""The ``streams:`` part: the sources of records, and the properties of each stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from millwheel.connect.built_in import SOURCES
from millwheel.connect.python_objects import OBJECT_NAME
from millwheel.core.instants.decimals import decimal_form, is_decimal
from millwheel.core.instants.time_forms import INSIDE, KIND, UNITS, TimeForm, is_time
from millwheel.core.pipeline.spec import DEAD_LETTERS, SourceSpec, StreamSpec
from millwheel.language.spec.parts.computation_fields import ON_ERROR
from millwheel.language.spec.parts.tables import TABLE, read_table
from millwheel.language.spec.reading.kinds import Kind, Kinds, read_kind
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    FAILED,
    MERGED,
    Choice,
    Duration,
    Entries,
    Field,
    FilePart,
    ObjectName,
    Own,
    Short,
    Text,
)
from millwheel.language.spec.reading.reader import NodeReader, is_expression

TYPES = ("int", "float", "str", "bool", KIND)
_DECIMAL = Text("decimal(12, 2)", r"^decimal\( *[0-9]+ *(, *[0-9]+ *)?\)$")
WATERMARK = FilePart(
    "{max_delay: 10s}",
    {
        "max_delay": Field(
            "max_delay_us",
            Duration(),
            "how far a record may lie behind the newest of its partition. A record further behind"
            " is late: counted and dropped",
        ),
        "idle_after": Field(
            "idle_after_us",
            Duration(never=True),
            "(not with [`--until-caught-up`](caught-up.md)) a partition that is silent for this"
            " long no longer holds the watermark. The watermark then follows the wall clock in"
            " steps of 250 ms, after 20 s in steps of a second. A stream that is silent as a whole,"
            " or has never had a record, is taken to be as far as the furthest stream that some"
            " computation takes together with it, so it holds no union, join or enrichment."
            " `never`: a silent partition holds the watermark for ever",
        ),
        "max_future": Field(
            "max_future_us",
            Duration(never=True),
            "a record this far ahead of the wall clock goes to the dead letters, because one wrong"
            " clock would close every window. `never` turns this off",
        ),
    },
    StreamSpec(""),
)
_TIMESTAMP = FilePart(
    "{field: ts, unit: ms}",
    {
        "field": Field(
            "timestamp", Text("ts"), "its name", "write for example {field: ts, unit: ms}"
        ),
        "unit": Field(
            "timestamp_unit_us",
            Choice(tuple(UNITS), UNITS.__getitem__),
            "what a number counts",
        ),
    },
)
TIME_FIELD = FilePart(
    "{type: timestamp, unit: ms}",
    {
        "type": Field("", Choice((KIND,)), f"`{KIND}`", "write for example type: timestamp"),
        "unit": Field(
            "unit",
            Choice(tuple(UNITS)),
            "what a number counts, since 1970 UTC",
            default="µs; a number that hardly is one goes to the dead letters",
        ),
        "zone": Field(
            "zone",
            Text("Europe/Berlin"),
            "the zone of the clocks that texts without an offset show",
            default="UTC",
        ),
        "format": Field(
            "format",
            Text("%d.%m.%Y %H:%M"),
            "the [format](expressions.md#formats-of-times) of the texts; numbers are refused then",
            default="ISO 8601",
        ),
    },
    TimeForm(),
)
_ID = FilePart(
    "{field: event_id, horizon: 1h}",
    {
        "field": Field(
            "id", Text("event_id"), "its name", "write for example {field: event_id, horizon: 1h}"
        ),
        "horizon": Field(
            "id_horizon_us", Duration(1), "how much later, in event time, a copy may come"
        ),
    },
    StreamSpec(""),
)


def _type(reader: NodeReader, node: YamlNode) -> Any:
    """The kind of a declared field, which may be a map."""
    if node.is_scalar and node.text.startswith("decimal"):
        return _decimal(reader, node)
    if not node.is_map:
        return Choice(TYPES).read(reader, node)
    nodes = TIME_FIELD.nodes(reader, node)
    attributes = TIME_FIELD.values(reader, nodes)
    if "type" not in nodes or Choice((KIND,)).read(reader, nodes["type"]) is FAILED:
        return FAILED
    if "unit" in attributes and "format" in attributes:
        reader.bad(
            node, "`unit` is for numbers, and `format` for texts: leave one out, as a field has one"
        )
    form = TimeForm(**attributes)
    reader.attempt(node, form.check)
    return form.kind


def _decimal(reader: NodeReader, node: YamlNode) -> Any:
    if node.text.count("(") > node.text.count(")"):
        reader.bad(
            node,
            'in braces a comma ends the value; write it in quotes: "decimal(12, 2)", the digits and'
            " those behind the point",
        )
        return FAILED
    form = reader.attempt(node, lambda: decimal_form(node.text))
    return FAILED if form is None else form.kind


STREAM = FilePart(
    "{source: {files: {path: …}}, timestamp: ts}",
    {
        "source": Field(
            "",
            Own(("source",)),
            "[where the records come from](pipeline.md#files): one kind, with its options",
            default="none: a computation produces the stream",
        ),
        "timestamp": Field(
            "",
            Short("field", _TIMESTAMP),
            "the field with [the time when a record happened](pipeline.md#timestamp), or `arrival`:"
            " the time at which it is read",
            default="required with a source (`ts` for the generator), but for a `table` that ends",
        ),
        "id": Field(
            MERGED,
            Short("field", _ID),
            "the field that identifies [duplicates](pipeline.md#id)",
            default="none: all are different",
        ),
        "watermark": Field(
            MERGED,
            WATERMARK,
            "[how far out of order records may come](pipeline.md#watermark)",
            default="in order",
        ),
        "table": TABLE,
        "schema": Field(
            "schema",
            ObjectName("records:Click"),
            "[the class that records are decoded into](pipeline.md#schema-and-fields)",
            default="dicts",
        ),
        "fields": Field(
            "fields",
            Entries(Own((Choice(TYPES), _DECIMAL, TIME_FIELD), _type), "{ad_id: int, cost: float}"),
            "[types of fields](pipeline.md#schema-and-fields)",
            default="not checked",
        ),
        "on_error": ON_ERROR,
    },
    StreamSpec(""),
)
_ONLY_WITH_SOURCE = ("timestamp", "id", "watermark", "on_error")
_NO_EXPRESSION = (
    "name a field (with its unit: {field: ts, unit: ms}), or a function of yours, module:function"
)
ARRIVAL = "arrival"
"""In place of a field: the time at which a record is read."""
_READ_TIMES = ("files", "http", "injection", "kafka", "postgres")
_READ_DECIMALS = ("files", "http", "injection", "kafka", "postgres")
_DECIMAL_FORMATS = ("", "json", "jsonl", "csv", "parquet", "avro", "protobuf", "debezium")
_GENERATOR_TIMESTAMP = "ts"
"""The built-in generator's timestamp field."""


def read_stream(
    reader: NodeReader, name: str, node: YamlNode, origin: str
) -> tuple[StreamSpec, Kind | None]:
    """A stream, and the kind of its source."""
    fields = STREAM.nodes(reader, node)
    _check_stream_name(reader, name, node)
    kind = _source(reader, fields, origin)
    if "source" not in fields:
        _refuse_without_source(reader, fields)
    source = SourceSpec(kind.name, kind.options) if kind else None
    spec = StreamSpec(
        name=name,
        source=source,
        table=read_table(reader, fields, source),
        where=reader.where(node),
        **_timestamp(reader, node, fields, kind),
        **STREAM.values(reader, fields),
    )
    spec = _with_decimals(reader, fields, _with_times(reader, fields, spec))
    return (_in_order_of_arrival(reader, fields, spec) if spec.arrival else spec), kind


def _with_times(reader: NodeReader, fields: Mapping[str, YamlNode], spec: StreamSpec) -> StreamSpec:
    """The same stream with its fields that are timestamps, which are whole numbers once they were
    read."""
    times = {name: kind for name, kind in spec.fields.items() if is_time(kind)}
    if not times:
        return spec
    if spec.schema:
        reader.bad(
            fields["fields"],
            "a class declares the types of its fields itself; remove schema, or fields",
        )
    elif spec.source is None or spec.source.kind not in _READ_TIMES:
        origin = "a computation" if spec.source is None else f"the source {spec.source.kind!r}"
        reader.bad(
            fields["fields"].value[next(iter(times))],
            f"{origin} gives times as whole µs, which expressions take as they are: write int."
            f" {KIND} is for sources that read records as others wrote them:"
            f" {', '.join(_READ_TIMES)}",
        )
    timestamp = fields.get("timestamp")
    if spec.timestamp in times and timestamp is not None and timestamp.is_map:
        unit = timestamp.value.get("unit")
        if unit is not None:
            reader.bad(
                unit,
                f"{spec.timestamp} is declared as {KIND}, and is in µs once it was read: write"
                f" timestamp: {spec.timestamp}, and the unit below fields, as {{type: {KIND}, unit:"
                f" {unit.text}}}",
            )
    inside = {name: INSIDE if name in times else kind for name, kind in spec.fields.items()}
    states = spec.states_unit or spec.timestamp in times
    return replace(spec, fields=inside, times=times, states_unit=states)


def _with_decimals(
    reader: NodeReader, fields: Mapping[str, YamlNode], spec: StreamSpec
) -> StreamSpec:
    """The same stream with its fields that are decimals, which are whole units once they were
    read."""
    decimals = {name: kind for name, kind in spec.fields.items() if is_decimal(kind)}
    if not decimals:
        return spec
    node = fields["fields"].value[next(iter(decimals))]
    source, form = spec.source, _format_of(spec)
    if spec.schema:
        reader.bad(
            node, "a class declares the types of its fields itself; remove schema, or fields"
        )
    elif source is None or source.kind not in _READ_DECIMALS or form not in _DECIMAL_FORMATS:
        maker = "a computation" if source is None else f"the source {source.kind!r}"
        maker = f"{maker} with the format {form!r}" if source is not None and form else maker
        reader.bad(
            node,
            f"{maker} does not give decimals. They are read by {', '.join(_READ_DECIMALS)}, from"
            f" {', '.join(filter(None, _DECIMAL_FORMATS))}; declare it as float, or as str to keep"
            " all digits",
        )
    if spec.timestamp in decimals:
        reader.bad(
            node, f"{spec.timestamp} is the timestamp of the stream; declare it as int or {KIND}"
        )
    inside = {name: INSIDE if name in decimals else kind for name, kind in spec.fields.items()}
    return replace(spec, fields=inside, decimals=decimals)


def _format_of(spec: StreamSpec) -> str:
    """The format in the options of a source, "" if there is none."""
    format_name = spec.source.options.get("format", "") if spec.source is not None else ""
    return (
        str(next(iter(format_name), "")) if isinstance(format_name, Mapping) else str(format_name)
    )


def _in_order_of_arrival(
    reader: NodeReader, fields: Mapping[str, YamlNode], spec: StreamSpec
) -> StreamSpec:
    """The same stream: no record is late, none lies in the future, and the clock never idles."""
    if "watermark" in fields:
        reader.bad(
            fields["watermark"],
            "with timestamp: arrival no record is late, and the watermark follows the clock; remove"
            " watermark",
        )
    if ARRIVAL in spec.fields:
        reader.bad(
            fields["timestamp"],
            "the stream has a field arrival: write timestamp: {field: arrival} for that field, or"
            " rename it",
        )
    return replace(spec, max_delay_us=0, idle_after_us=None, max_future_us=None)


def _check_stream_name(reader: NodeReader, name: str, node: YamlNode) -> None:
    if name == DEAD_LETTERS:
        reader.bad(
            node,
            f"{DEAD_LETTERS!r} exists in every pipeline; consume it or give it a sink, but do not"
            " declare it",
        )
    else:
        reader.check_name(node, name, "stream")


def _source(reader: NodeReader, fields: Mapping[str, YamlNode], origin: str) -> Kind | None:
    if "source" not in fields:
        return None
    from millwheel.connect.kinds import known_sources

    kind = read_kind(reader, fields["source"], Kinds("source", SOURCES, known_sources), origin)
    if kind is not None and kind.name == "injection" and kind.options:
        reader.bad(kind.node, "injection has no options; write source: {injection: {}}")
    return _http(reader, kind) if kind is not None and kind.name == "http" else kind


def _http(reader: NodeReader, kind: Kind) -> Kind:
    """A stream with this source is an injected one, with an HTTP endpoint in front of it."""
    from millwheel.connect.connectors.http.options import read_http_options

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
                f"only a stream with a source has its own {name}; remove it, or add source:"
                " {files: {path: …}}",
            )


def _timestamp(
    reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode], kind: Kind | None
) -> dict[str, Any]:
    """The attributes of a stream's timestamp."""
    timestamp_node = fields.get("timestamp")
    generated = kind is not None and kind.name == "generator"
    if timestamp_node is None and generated:
        return {"timestamp": _GENERATOR_TIMESTAMP}
    if timestamp_node is None:
        if "source" in fields and "table" not in fields:
            text = "name the field with a record's event time: write timestamp: FIELD"
            reader.missing(node, "timestamp", text)
        return {"states_unit": False}
    if not timestamp_node.is_map and timestamp_node.value == ARRIVAL:
        return {"arrival": True}
    values = Short("field", _TIMESTAMP).read(reader, timestamp_node)
    text = values.get("timestamp", "")
    field = (
        timestamp_node.value.get("field", timestamp_node)
        if timestamp_node.is_map
        else timestamp_node
    )
    if ":" in text and not OBJECT_NAME.fullmatch(text):
        reader.bad(field, f"{text[:80]!r} is neither a field nor module:function")
    elif is_expression(text) and not _declares(fields, text):
        reader.bad(
            field,
            f"{text[:80]!r} is an expression, and timestamps are not computed here:"
            f" {_NO_EXPRESSION}",
        )
    return {**values, "states_unit": generated or "timestamp_unit_us" in values}


def _declares(fields: Mapping[str, YamlNode], name: str) -> bool:
    declared = fields.get("fields")
    return declared is not None and isinstance(declared.value, dict) and name in declared.value
