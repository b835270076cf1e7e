"""The plans of tables, and of copies of them.

A table is a computation behind its source, which emits how rows have changed.

    changes: {source: {kafka: {format: debezium, …}}}

becomes

    events.changes: the stream of the source, change events by the key of their row
    table.changes: keeps the row of each key, and emits into the stream changes: retractions of
    former rows, and rows

So consumers get each change once, however often its event comes. An id of the stream would
recognize copies of events, as the table does; it would also take the two parts of an update for
copies.

A stream with ``table: {key: id}`` is planned likewise. An enrichment with it reads events.NAME: it
needs all versions of a row, with their times, and of a change log there are only those that bundles
have left.

Where ``broadcast`` lets each worker read it, the
enrichment has only the other input, whose records keep their keys. Another computation, rows.NAME,
takes the rows by their keys and passes on none: it is there for the dead letters of those without.

Of a table with times there are whole copies then:

    placed: {input: {orders: {key: shelf}, shelves: {key: shelf}}, enrich: {with: shelves,
        broadcast: true}}

becomes

    copies.placed: takes all changes of the table under one key, and sends each to every copy
    placed: orders by the key of a copy, and the changes of that copy

A copy is the state of one key. So all of a table lies beside the records that ask for it, and moves
with them: a split gives each child whole copies, and a merge brings independent copies together.
Records go to a copy by the key that they came with, and not by that of their row; so do their
retractions. Beside it they wait for the watermark behind the changes, as where the table is divided
by its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from millwheel.core.model.keys import Key, key_hash
from millwheel.core.model.ranges import SPACE
from millwheel.core.pipeline.keys import OWN_KEY, KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SourceSpec,
    StreamSpec,
    has_format,
)
from millwheel.core.pipeline.table_changes import KEY_FIELD
from millwheel.core.pipeline.work import (
    CopiesSpec,
    EnrichSpec,
    StepKind,
    StepSpec,
    StepsSpec,
    TableSpec,
    TopSpec,
)

_EVENTS, _TABLE, _ROWS = "events.", "table.", "rows."
_EXTRAS = ("key_field", "timestamp_field", "headers_field")
"""Options of a source that add parts of a message to each record."""


def tabled(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline as it runs: with a table behind each source of change events, and behind each
    stream that is declared to be one, if anything takes its changes."""
    changing = {stream.name: stream for stream in spec.streams if _is_table(stream)}
    if not changing:
        return spec
    computations = tuple(_with_versions(each, changing) for each in spec.computations)
    computations += tuple(_judging(changing[name]) for name in _held(spec, changing))
    taken = {each.stream for computation in computations for each in computation.inputs}
    taken.update(sink.stream for sink in spec.sinks)
    tables = [
        _table(stream)
        for stream in changing.values()
        if stream.table is None or stream.name in taken
    ]
    filled = {name for each in tables for name in each.outputs}
    streams = tuple(
        each
        for stream in spec.streams
        for each in _streams(stream, stream.name in changing, stream.name in filled)
    )
    return replace(spec, streams=streams, computations=(*tables, *computations))


def events_of(stream: str) -> str:
    """The stream of the source in front of the table that fills ``stream``."""
    return _EVENTS + stream


def source_stream(spec: PipelineSpec, name: str) -> str:
    """The stream of the source that fills the stream ``name`` of a file: its own, or that in front
    of its table."""
    events = events_of(name)
    return events if any(each.name == events for each in spec.streams) else name


def declared_name(stream: str) -> str:
    """The name that the stream of a source has in a file."""
    return stream.removeprefix(_EVENTS)


def _is_table(stream: StreamSpec) -> bool:
    return stream.table is not None or is_changing(stream)


def _with_versions(
    computation: ComputationSpec, tables: Mapping[str, StreamSpec]
) -> ComputationSpec:
    """An enrichment with a declared table takes the records of its source."""
    work = computation.work
    stream = tables.get(work.stream) if isinstance(work, EnrichSpec) else None
    if not isinstance(work, EnrichSpec) or stream is None or stream.table is None:
        return computation
    events = events_of(stream.name)
    inputs = tuple(
        InputSpec(events, each.key) if each.stream == stream.name else each
        for each in computation.inputs
    )
    made = replace(
        work,
        stream=events,
        upserts=True,
        delete=stream.table.delete,
        timeless=stream.timeless and work.waits,
    )
    if made.held:
        assert made.broadcast is not None
        [other] = (each for each in computation.inputs if each.stream != stream.name)
        held = replace(made.broadcast, by=other.key, of=stream.table.key)
        inputs, made = (replace(other, key=OWN_KEY),), replace(made, broadcast=held)
    return replace(computation, inputs=inputs, work=made)


def _held(spec: PipelineSpec, tables: Mapping[str, StreamSpec]) -> list[str]:
    """The tables that each worker reads whole."""
    works = [each.work for each in spec.computations]
    held = {each.stream for each in works if isinstance(each, EnrichSpec) and each.broadcast}
    return [name for name, stream in tables.items() if name in held and stream.timeless]


def _judging(stream: StreamSpec) -> ComputationSpec:
    """The computation that makes a dead letter of each row of a table that has no key, or whose
    ``delete`` cannot be computed."""
    assert stream.table is not None
    # Always false, once it is computed.
    condition = f"({stream.table.delete}) and false" if stream.table.delete else "false"
    return ComputationSpec(
        name=_ROWS + stream.name,
        inputs=(InputSpec(events_of(stream.name), stream.table.key),),
        work=StepsSpec((StepSpec(StepKind.FILTER, expression=condition),)),
        on_error=stream.on_error,
        where=stream.where,
    )


def untabled(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline without its tables, for tests that provide the streams behind them: rows and
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


def _streams(stream: StreamSpec, changing: bool, filled: bool) -> Iterator[StreamSpec]:
    if not changing:
        yield stream
        return
    events = replace(stream, name=events_of(stream.name), table=None)
    if stream.table is None:
        events = replace(events, id="")
    elif stream.timeless:
        # A table without times must be there as a whole before any of it is used.
        events = replace(events, idle_after_us=None)
    yield events
    if filled:
        yield StreamSpec(stream.name, fields=stream.fields, where=stream.where)


def _table(stream: StreamSpec) -> ComputationSpec:
    assert stream.source is not None
    key, work = KeySpec(KeyKind.FIELD, (KEY_FIELD,)), None
    if stream.table is not None:
        key = stream.table.key
        work = TopSpec(latest=True, upserts=True, delete=stream.table.delete)
    return ComputationSpec(
        name=_TABLE + stream.name,
        inputs=(InputSpec(events_of(stream.name), key),),
        outputs=(stream.name,),
        work=work or TableSpec(stream.name, _key(stream.source), _beside(stream.source)),
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


COPIES = 8
"""The number of workers of a middling run; each further copy costs the memory of the table, and one
more production of each change."""
MOST_COPIES = 256
"""Beyond that a change would be too many productions for one call."""
_PREFIX = "copies."


def with_copies(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline as it runs: with the copies of tables in front of enrichments that need them."""
    return replace(
        spec, computations=tuple(each for whole in spec.computations for each in _stages(whole))
    )


def _stages(whole: ComputationSpec) -> Iterator[ComputationSpec]:
    work = whole.work
    if not isinstance(work, EnrichSpec) or work.broadcast is None or work.held:
        yield whole
        return
    [table] = (each for each in whole.inputs if each.stream == work.stream)
    [other] = (each for each in whole.inputs if each.stream != work.stream)
    copies, name = work.broadcast.copies or COPIES, _PREFIX + whole.name
    limit_bytes, of = work.broadcast.limit_bytes, declared_name(work.stream)
    yield ComputationSpec(
        name,
        (InputSpec(table.stream, KeySpec(KeyKind.ALL)),),
        (name,),
        CopiesSpec(of, table.key, copies, limit_bytes, work.upserts, work.delete),
        max_attempts=whole.max_attempts,
        on_error=whole.on_error,
        shards=1,
        where=whole.where,
    )
    own = InputSpec(other.stream, replace(OWN_KEY, copies=copies))
    broadcast = replace(work.broadcast, copies=copies, by=other.key)
    # Deletions are recognized before the table is copied.
    work = replace(work, stream=name, of=of, broadcast=broadcast, upserts=False, delete="")
    yield replace(
        whole,
        inputs=(own, InputSpec(name, OWN_KEY)),
        work=work,
    )


@cache
def copy_keys(copies: int) -> tuple[int, ...]:
    """The keys of so many copies: the least numbers whose hashes lie in equal parts of the space,
    one in each. State depends on them."""
    key_of_part: dict[int, int] = {}
    number = 0
    while len(key_of_part) < copies:
        key_of_part.setdefault(key_hash(number) * copies // SPACE, number)
        number += 1
    return tuple(key_of_part[part] for part in range(copies))


def copy_key(key: Key, copies: int) -> int:
    """The key of the copy for records with this key: in the same part of the space, so that records
    mostly stay on their worker."""
    return copy_keys(copies)[key_hash(key) * copies // SPACE]
