"""``table:`` of a stream: its records are rows, and each takes the place of the one before it.

table: id
table: {key: [country, id], delete: op == 'd'}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millwheel.core.pipeline.keys import OWN_KEY, KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    PipelineSpec,
    SourceSpec,
    StreamSpec,
    UpsertSpec,
)
from millwheel.core.pipeline.work import EnrichSpec
from millwheel.language.spec.key_notation import KEY_SHAPES, read_key
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import ExpressionText, Field, FilePart, Own, Short
from millwheel.language.spec.reading.reader import NodeReader

_EXAMPLE = "{key: id}"
TABLE_PART = FilePart(
    _EXAMPLE,
    {
        "key": Field(
            "key",
            Own(KEY_SHAPES, read_key),
            "the fields, or [named expressions](pipeline.md#keys), by which a row is known",
            "by which fields a row is known; write for example {key: id}",
        ),
        "delete": Field(
            "delete",
            ExpressionText("op == 'd'"),
            "a record for which this holds is not a row: its key has none from then on",
            default="every record is a row",
        ),
    },
)
TABLE = Field(
    "",
    Short("key", TABLE_PART),
    "[its records are the rows of a table](pipeline.md#table): each takes the place of the one with"
    " its key",
    default="every record counts",
)


def read_table(
    reader: NodeReader, fields: Mapping[str, YamlNode], source: SourceSpec | None
) -> UpsertSpec | None:
    """The table that a stream is declared to be; None if it is none, or it cannot be read."""
    node = fields.get("table")
    if node is None:
        if source is not None and source.options.get("tombstones") == "delete":
            reader.bad(
                fields["source"],
                "tombstones: delete is for the rows of a table; write for example table: _key, or"
                " tombstones: skip",
            )
        return None
    if source is None:
        reader.bad(
            node,
            "only a stream with a source is declared to be a table; leave it out, and write"
            " deduplicate: {keep: last} where a computation makes the rows",
        )
    elif source.carries_retractions:
        reader.bad(
            node,
            "change events say which row they are about, so this is a table already; leave table"
            " out",
        )
    if "timestamp" not in fields and "watermark" in fields:
        reader.bad(
            fields["watermark"],
            "a table without a timestamp has no watermark but its end; leave watermark out, or name"
            " the field with the time of a row",
        )
    values = TABLE.value(reader, node, {})
    if values.get("key", OWN_KEY) == OWN_KEY:
        return None
    return UpsertSpec(**values)


def check_tables(
    reader: NodeReader,
    spec: PipelineSpec,
    node_at: Callable[..., YamlNode],
    never_ends: Callable[[SourceSpec], bool],
) -> None:
    """Notes tables without a time or an end, and enrichments by another key than the table's.
    ``node_at`` gives the node of a path."""
    tables = {each.name: each.table for each in spec.streams if each.table is not None}
    for stream in spec.streams:
        source = stream.source if stream.name in tables and stream.timeless else None
        if source is not None and never_ends(source):
            reader.missing(
                node_at("streams", stream.name),
                "timestamp",
                "this table never ends, so it is not known when all of it is there; write"
                " timestamp: FIELD, or let the source end",
            )
    for computation in spec.computations:
        work = computation.work
        if isinstance(work, EnrichSpec) and work.broadcast is not None:
            why = _why_no_broadcast(computation, work, spec.stream(work.stream))
            if why:
                reader.bad(
                    node_at("computations", computation.name, "enrich", "broadcast"),
                    f"{why}; or leave out broadcast, so that the table is divided by its key",
                )
        if not isinstance(work, EnrichSpec) or work.stream not in tables:
            continue
        own = tables[work.stream].key
        for each in computation.inputs:
            if each.stream == work.stream and each.key != own:
                reader.bad(
                    node_at("computations", computation.name, "input", each.stream),
                    f"a row of the table {work.stream!r} is found by the table's own key; write"
                    f" {{key: {_notation(own)}}}",
                )


def _why_no_broadcast(computation: ComputationSpec, work: EnrichSpec, stream: StreamSpec) -> str:
    """Why a table cannot be whole in several processes, with a cure; "" where it can."""
    assert work.broadcast is not None
    if not work.waits:
        return (
            "a record finds the rows as of its own time in a table that is there whole; leave out"
            " as_of"
        )
    if stream.table is None or not stream.timeless:
        own = (each.stream for each in computation.inputs if each.key.kind is KeyKind.RECORD)
        return next((_WHY_KEY.format(name, name) for name in own), "")
    if stream.id:
        return (
            "with broadcast the table is read without looking for copies by id, of which the last"
            f" row of a key wins anyway; leave out id of {stream.name!r}"
        )
    if work.broadcast.copies:
        return (
            "copies are of a table that goes on, and each worker reads one that ends and has no"
            " times; leave out copies"
        )
    return ""


_WHY_KEY = (
    "records of {!r} come without a key for their row: the one that their producer gave decides"
    " which copy of the table they go to; write the key, for example {}: {{key: id}}"
)


def _notation(key: KeySpec) -> str:
    """A key as it is written in a file."""
    if key.kind is KeyKind.ALL:
        return "all"
    if key.texts:
        pairs = zip(key.names, key.texts, strict=True)
        return "{" + ", ".join(f'{name}: "{text}"' for name, text in pairs) + "}"
    return key.names[0] if len(key.names) == 1 else f"[{', '.join(key.names)}]"
