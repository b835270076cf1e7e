"""The plan of a stream of change events: a table behind its source, which says how rows have
changed.

    changes: {source: {kafka: {format: debezium, …}}}

becomes

    events.changes: the stream of the source, change events by the key of their row
    table.changes: keeps the row of each key, and emits into the stream changes: retractions of
    former rows, and rows

So consumers see each change once, however often its event comes. An id of the stream would
recognise copies of events, of which the table takes care; it would also take the two parts of an
update for copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    KeyKind,
    KeySpec,
    PipelineSpec,
    SourceSpec,
    StreamSpec,
    has_format,
)
from millwheel.core.pipeline.work import TableSpec
from millwheel.core.tables.changes import KEY_FIELD

_EVENTS, _TABLE = "events.", "table."
_EXTRAS = ("key_field", "timestamp_field", "headers_field")
"""Options of a source that add parts of a message to each record."""


def tabled(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline as it runs: with a table behind each source of change events."""
    changing = {stream.name: stream for stream in spec.streams if is_changing(stream)}
    if not changing:
        return spec
    streams = tuple(
        each for stream in spec.streams for each in _streams(stream, stream.name in changing)
    )
    tables = tuple(_table(stream) for stream in changing.values())
    return replace(spec, streams=streams, computations=(*tables, *spec.computations))


def untabled(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline without its tables, for tests that give the streams behind them: rows and
    retractions."""
    tables = {
        each.inputs[0].stream: each.work.of
        for each in spec.computations
        if isinstance(each.work, TableSpec)
    }
    if not tables:
        return spec
    streams = tuple(
        replace(each, name=tables.get(each.name, each.name))
        for each in spec.streams
        if each.name not in tables.values()
    )
    others = (each for each in spec.computations if not isinstance(each.work, TableSpec))
    return replace(spec, streams=streams, computations=tuple(others))


def is_changing(stream: StreamSpec) -> bool:
    """Whether the source of a stream has the change events of a table."""
    return stream.source is not None and has_format(stream.source.options, "debezium")


def _streams(stream: StreamSpec, changing: bool) -> Iterator[StreamSpec]:
    if not changing:
        yield stream
        return
    yield replace(stream, name=_EVENTS + stream.name, id="")
    yield StreamSpec(stream.name, fields=stream.fields, where=stream.where)


def _table(stream: StreamSpec) -> ComputationSpec:
    assert stream.source is not None
    return ComputationSpec(
        name=_TABLE + stream.name,
        inputs=(InputSpec(_EVENTS + stream.name, KeySpec(KeyKind.FIELD, (KEY_FIELD,))),),
        outputs=(stream.name,),
        work=TableSpec(stream.name, _key(stream.source), _beside(stream.source)),
        on_error=stream.on_error,
        where=stream.where,
    )


def _options(source: SourceSpec) -> Mapping[str, Any]:
    choice = source.options.get("format")
    options = choice.get("debezium") if isinstance(choice, Mapping) else None
    return options if isinstance(options, Mapping) else {}


def _key(source: SourceSpec) -> tuple[str, ...]:
    names = _options(source).get("key", ())
    return (names,) if isinstance(names, str) else tuple(names)


def _beside(source: SourceSpec) -> tuple[str, ...]:
    extras = [source.options[name] for name in _EXTRAS if source.options.get(name)]
    return (*(_options(source).get("add") or {}), *extras)
