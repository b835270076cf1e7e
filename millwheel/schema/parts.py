"""The parts of a pipeline file, each with the fields that its reader takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millwheel.core.aggregates.functions import FUNCTIONS
from millwheel.core.pipeline.dictionaries import MOST_PARTITIONS
from millwheel.core.pipeline.spec import Delivery, Divided, JoinKind, Missing, Productions
from millwheel.core.triggers.trees import BUILDERS
from millwheel.core.windows.panes import Accumulation, OutputTime
from millwheel.errors import invariant
from millwheel.schema import words as w
from millwheel.schema.ends import LOOKUP_FORMS, SINK_FORMS, SOURCE_FORMS, end
from millwheel.schema.words import Schema
from millwheel.spec import latency
from millwheel.spec.parts import computations, limits, lookups, queries, slices, steps, streams, windows
from millwheel.spec.pipelines import FIELDS
from millwheel.spec.tracing import FIELDS as TRACING_FIELDS
from millwheel.spec.visitors import counts, dictionaries

_OBJECT = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
_SIZE: Schema = {"type": "string", "description": "a number and a unit, such as 64kB or 16MiB"}


@dataclass(frozen=True, slots=True)
class Installed:
    """The kinds that installed packages add."""

    sources: Sequence[str] = ()
    sinks: Sequence[str] = ()
    lookups: Sequence[str] = ()


def pipeline_schema(more: Installed = Installed()) -> Schema:
    """The schema of a whole file."""
    found: dict[str, Schema] = {}
    top = {
        "pipeline": {**w.NAME, "description": "the pipeline's name, which its root is kept under"},
        "streams": w.entries(_stream(found, more), w.NAME, "flows of records; those with a source come from outside"),
        "computations": w.entries(_computation(found, more), w.NAME, "what is made of the streams"),
        "sinks": w.entries(end(SINK_FORMS, found, more.sinks), w.NAME, "where streams go"),
        "queries": w.entries(_query(), w.NAME, "formulas over what computations keep"),
        "limits": _limits(),
        "tracing": _tracing(),
        "latency": {
            **w.either(w.choice([latency.GREEDY, latency.BALANCED]), w.DURATION),
            "description": "how long records may wait at each worker for others: greedy, balanced or a duration",
        },
        "ship": {**w.one_or_more(w.TEXT), "description": "data files that workers need, or globs of them"},
    }
    same(top, FIELDS)
    defs = {**w.WORDS, "trigger": _trigger(), "step": _step(), **dict(sorted(found.items()))}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A MillWheel pipeline"}
    return {**head, **w.fields(top, ["pipeline", "streams"]), "$defs": defs}


def same(schema: Mapping[str, Schema], known: Sequence[str]) -> None:
    """Check that the schema has exactly the fields that the reader knows. Raises InvariantError."""
    invariant(schema.keys() == {*known}, f"the schema has {sorted(schema)}, the reader {sorted(known)}")


def _stream(found: dict[str, Schema], more: Installed) -> Schema:
    horizon = w.fields({"field": w.TEXT, "horizon": w.DURATION}, ["field"])
    unit = w.fields({"field": w.TEXT, "unit": w.choice(streams.UNITS)}, ["field"])
    known = {
        "source": end(SOURCE_FORMS, found, more.sources),
        "timestamp": {**w.either(w.TEXT, unit), "description": "the field with a record's event time"},
        "id": {**w.either(w.TEXT, horizon), "description": "the field that identifies copies"},
        "watermark": w.fields({"max_delay": w.DURATION, "idle_after": w.DURATION, "max_future": w.DURATION}),
        "schema": w.OBJECT_NAME,
        "fields": w.entries(w.choice(streams.TYPES), text="types of fields"),
        "on_error": _on_error(),
    }
    same(known, streams.FIELDS)
    return w.fields(known)


def _computation(found: dict[str, Schema], more: Installed) -> Schema:
    key = w.fields({"key": w.one_or_more(w.TEXT)})
    inputs = w.entries(w.either(key, {"type": "null"}), w.NAME)
    by_tables = [each.value for each in Divided if each.by_tables]
    dials = {
        "delivery": w.choice(kind.value for kind in Delivery),
        "productions": w.choice(kind.value for kind in Productions),
        "max_attempts": w.number(1, 1_000),
        "on_error": _on_error(),
        "shards": w.number(1, 4_096),
        "standby": w.number(0, 1),
        "skew": {
            "type": "string",
            "pattern": rf"^(hash|scatter\([0-9]+\)|({'|'.join(by_tables)})(\([0-9]+\))?)$",
            "description": f"hash, scatter(4), or one of {', '.join(by_tables)}, with or without a number of instances",
        },
    }
    known = {
        "input": {**w.either(inputs, w.one_or_more(w.NAME)), "description": "streams, each with its key"},
        "output": {**w.one_or_more(w.NAME), "description": "the stream, or streams, of its results"},
        "callback": {**w.OBJECT_NAME, "description": "module:Class, derived from millwheel.Computation"},
        "options": {"type": "object", "description": "arguments of the callback's constructor"},
        "order_by": w.choice(["timestamp"]),
        **_steps(),
        **_joins(found, more),
        "slices": _slices(),
        "dictionary": _dictionary(),
        "uv": _visitors(),
        **_windowed(),
        **dials,
    }
    same(known, computations.FIELDS)
    return w.fields(known, ["input"])


def _steps() -> dict[str, Schema]:
    shapes = w.entries(w.EXPRESSION, text="fields of the new value, each an expression")
    condition = w.either(w.OBJECT_NAME, w.EXPRESSION)
    copies = w.fields({"by": w.one_or_more(w.TEXT), "within": w.DURATION}, ["within"])
    return {
        "map": w.either(w.EXPRESSION, shapes),
        "flat_map": condition,
        "filter": condition,
        "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1},
        "deduplicate": copies,
        "branch": w.entries(w.EXPRESSION, w.NAME, "streams with conditions; otherwise takes the rest"),
        "match": w.choice(["first", "all"]),
    }


def _step() -> Schema:
    parts = {name: schema for name, schema in _steps().items() if name in steps.KINDS}
    same(parts, steps.KINDS)
    return {**w.fields(parts), "minProperties": 1}


def _joins(found: dict[str, Schema], more: Installed) -> dict[str, Schema]:
    missing = w.choice(kind.value for kind in Missing)
    as_of = w.choice(["timestamp", "arrival"])
    stream = w.fields({"with": w.NAME, "as": w.TEXT, "missing": missing, "as_of": as_of}, ["with"])
    cache = w.fields({"size": w.number(1, 10**8), "ttl": w.DURATION, "absent": w.FLAG}, ["size", "ttl"])
    asked = {
        "lookup": end(LOOKUP_FORMS, found, more.lookups),
        "by": w.one_or_more(w.EXPRESSION),
        "as": w.TEXT,
        "fields": w.either(w.one_or_more(w.TEXT), w.entries(w.TEXT)),
        "missing": missing,
        "cache": cache,
        "batch": w.number(1, 1_000_000),
    }
    same(asked, lookups.FIELDS)
    enrich = {"if": {"required": ["lookup"]}, "then": w.fields(asked, ["lookup"]), "else": stream}
    return {"join": w.choice(kind.value for kind in JoinKind), "enrich": enrich}


def _slices() -> Schema:
    known = {
        "every": w.DURATION,
        "keep": w.DURATION,
        "levels": w.one_or_more(w.DURATION),
        "time_zone": w.TEXT,
        "ttl": w.DURATION,
    }
    same(known, slices.FIELDS)
    return w.fields(known, ["every", "keep"])


def _dictionary() -> Schema:
    known = {"of": w.TEXT, "as": w.TEXT, "partitions": w.number(1, MOST_PARTITIONS), "ttl": w.DURATION}
    same(known, dictionaries.OPTIONS)
    return w.fields(known, ["of", "as"])


def _visitors() -> Schema:
    known = {
        "of": w.TEXT,
        "every": w.DURATION,
        "per": w.DURATION,
        "time_zone": w.TEXT,
        "as": w.TEXT,
        "emit": w.choice(["all", "changes"]),
        "partitions": w.number(1, MOST_PARTITIONS),
        "ttl": w.DURATION,
        "approximate": w.FLAG,
    }
    same(known, counts.OPTIONS)
    return w.fields(known, ["of", "every"])


def _windowed() -> dict[str, Schema]:
    late = w.either(w.choice(windows.LATE), {"type": "string", "pattern": "^side:"}, w.fields({"side": w.NAME}))
    return {
        "window": _window(),
        "aggregate": w.entries(_aggregate(), text="fields of the results, each with its function"),
        "where": w.EXPRESSION,
        "trigger": {"$ref": "#/$defs/trigger"},
        "accumulation": w.choice(kind.value for kind in Accumulation),
        "allowed_lateness": w.DURATION,
        "output_time": w.choice(kind.value for kind in OutputTime),
        "late": late,
        "queryable": w.choice(["latest"]),
    }


def _window() -> Schema:
    more: dict[str, Schema] = {
        "every": w.DURATION,
        "offset": w.DURATION,
        "time_zone": w.TEXT,
        "emit": w.choice(["all", "changes"]),
        "with": {"type": "object"},
    }
    emits = {"tumbling": {"emit": w.choice(["all", "empty"])}}
    sizes = {"global": w.FLAG, "count": w.number(1, 2**31), "custom": w.OBJECT_NAME}
    kinds = [
        w.fields({kind: sizes.get(kind, w.DURATION), **{name: known[name] for name in names}}, [kind])
        for kind, names in windows.KINDS.items()
        for known in [{**more, **emits.get(kind, {})}]
    ]
    return w.either({"const": "global"}, *kinds)


def _aggregate() -> Schema:
    own = {"type": "string", "pattern": _OBJECT}
    by_name: Schema = {
        "patternProperties": {_OBJECT: {}},
        "minProperties": 1,
        "propertyNames": {"pattern": ":|^where$"},
    }
    call: Schema = {
        "type": "object",
        "properties": {**dict.fromkeys(sorted(FUNCTIONS), w.ANY), "where": w.EXPRESSION},
        "anyOf": [*({"required": [name]} for name in FUNCTIONS), by_name],
    }
    return w.either({"enum": sorted(FUNCTIONS)}, own, w.PARAMETER, call)


def _trigger() -> Schema:
    tree: Schema = {"$ref": "#/$defs/trigger"}
    several: Schema = {"type": "array", "items": tree, "minItems": 1}
    around = w.either(w.fields({"early": tree, "late": tree}), {"type": "null"})
    known = {
        **dict.fromkeys(("repeat", "once"), tree),
        **dict.fromkeys(("any", "all", "each"), several),
        "after_watermark": around,
        "or_finally": w.fields({"main": tree, "until": tree}, ["main", "until"]),
    }
    kinds = {name: known.get(name, w.ANY) for name in BUILDERS}
    return w.either({"enum": list(BUILDERS)}, w.PARAMETER, w.exactly_one(kinds))


def _query() -> Schema:
    names = w.one_or_more(w.TEXT)
    known = {"formula": w.EXPRESSION, "window": w.DURATION, "key": names, "keys": w.entries(names)}
    same(known, queries.FIELDS)
    return w.fields(known, ["formula"])


def _limits() -> Schema:
    known = {
        **dict.fromkeys(("record", "key", "state", "in_flight"), _SIZE),
        "timers_per_key": w.number(1, 10_000_000),
        "timers_after_end": w.number(1, 1_000_000_000),
        "callback_timeout": w.DURATION,
        "callback_hangs": w.number(1, 100),
    }
    same(known, limits.FIELDS)
    return w.fields(known)


def _tracing() -> Schema:
    known = {"sample": w.either({"type": "number", "minimum": 0, "maximum": 1}, w.PARAMETER), "keys": w.FLAG}
    same(known, TRACING_FIELDS)
    return w.fields(known, text="records whose way through the pipeline is a trace")


def _on_error() -> Schema:
    share = w.fields({"stop_above": {"type": "string", "pattern": r"%$|\$\{"}, "of_at_least": w.number(1, 10**9)})
    return w.either(w.choice(["dead_letter", "stop"]), share)
