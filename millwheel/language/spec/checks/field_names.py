"""Names of fields in keys, aggregates, copies, expressions and sinks, against those of the stream.

Where all fields of a stream are certain (see ``field_flow.py``), another name is an error; in an
expression, which may ask whether a record has it, and as the column of a sink, which may be empty,
it is a warning. ``fields:`` declares the types of some of them, and these are followed through
computations: there only a name that nearly is a declared one is a warning.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from millwheel.connect.own_functions import named_alone
from millwheel.core.aggregates.functions import FUNCTIONS
from millwheel.core.machines.specs import window_from_spec
from millwheel.core.pipeline.keys import KeySpec
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec, SinkSpec
from millwheel.core.pipeline.work import DeduplicateSpec, IntervalJoinSpec
from millwheel.core.windows.windows import OfInput
from millwheel.language.spec.checks.field_flow import exact_fields
from millwheel.language.spec.checks.topology import find
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import did_you_mean
from millwheel.language.spec.reading.reader import NodeReader
from millwheel.language.spec.typed.decimals import Fields
from millwheel.language.spec.typed.expressions import Path, expressions_of

_NEARLY = 0.75  # similar enough to be the same name, misspelt

Compile = Callable[[str], Any]
Classes = Mapping[str, Sequence[str]]
"""Stream to the fields of its class, for streams that have one."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A field of some streams, used at a line of the file."""

    name: str
    streams: tuple[str, ...]
    path: tuple[str, ...]
    sure: bool = True
    more: tuple[str, ...] = ()
    """Names that are there besides the fields of the streams."""


def check_field_names(
    reader: NodeReader,
    spec: PipelineSpec,
    top: YamlNode,
    classes: Classes,
    kinds: Mapping[str, Fields],
) -> None:
    """Note every name that no record of its streams can have. ``kinds`` are those of the fields of
    streams, with the fields of records within records."""
    _check_sides(reader, spec, top, kinds)
    declared = {stream: [*fields] for stream, fields in kinds.items()}
    exact = exact_fields(spec, classes)
    for use in _uses(spec):
        node = find(top, *use.path)
        field_names = sorted(
            {field for stream in use.streams for field in exact.get(stream, ())} | {*use.more}
        )
        if all(stream in exact for stream in use.streams):
            if use.name not in field_names:
                hint = _computed(use.name, field_names) or did_you_mean(use.name, field_names)
                words = (
                    f"{_streams(use.streams)} no field {use.name!r}{hint}; known:"
                    f" {', '.join(field_names)}"
                )
                if use.sure:
                    reader.bad(node, words)
                else:
                    reader.problems.warn(node.line, node.path, words)
            continue
        names = [
            *field_names,
            *(field for stream in use.streams for field in declared.get(stream, ())),
        ]
        close = get_close_matches(use.name, names, 1, _NEARLY)
        if use.name not in names and close:
            words = (
                f"{_streams(use.streams)} no declared field {use.name!r}; did you mean"
                f" {close[0]!r}?"
            )
            reader.problems.warn(node.line, node.path, words)


def _check_sides(
    reader: NodeReader, spec: PipelineSpec, top: YamlNode, kinds: Mapping[str, Fields]
) -> None:
    """Warn of a field of a side of a join (``clicks.prise``) that nearly is one of its stream."""
    compile_text = named_alone(spec.functions, spec.nulls, spec.vectorized).compile
    for computation in spec.computations:
        streams = [each.stream for each in computation.inputs]
        for text, inner in expressions_of(computation):
            of = [inner[1]] if inner[0] == "input" else streams
            node = find(top, "computations", computation.name, *inner)
            for part in ast.walk(compile_text(text).tree):
                match part:
                    case ast.Attribute(value=ast.Name(id=side), attr=name):
                        names = [*_names_within(side, of, kinds)]
                        close = get_close_matches(name, names, 1, _NEARLY)
                        if close and name not in names:
                            hint = f"has no known field {name!r}; did you mean {close[0]!r}?"
                            reader.problems.warn(node.line, node.path, f"{side} {hint}")


def _names_within(
    field_name: str, streams: Sequence[str], kinds: Mapping[str, Fields]
) -> Iterator[str]:
    for stream in streams:
        within = kinds.get(stream, {}).get(field_name)
        yield from within if isinstance(within, Mapping) else ()


def _computed(name: str, field_names: Sequence[str]) -> str:
    """The cure where a field of a field stands in place of a name."""
    outer, _, inner = name.rpartition(".")
    if outer.partition(".")[0] not in field_names or not inner.isidentifier():
        return ""
    return f"; a key that is computed has a name: key: {{{inner}: {name}}}"


def _streams(names: Sequence[str]) -> str:
    return (
        f"the stream {names[0]!r} has"
        if len(names) == 1
        else f"the streams {', '.join(map(repr, names))} have"
    )


def _uses(spec: PipelineSpec) -> Iterator[_Use]:
    compile_text = named_alone(spec.functions, spec.nulls, spec.vectorized).compile
    for stream in spec.streams:
        if stream.table is not None:
            at, text = ("streams", stream.name, "table"), stream.table.delete
            yield from _of_key(compile_text, stream.table.key, stream.name, (*at, "key"))
            yield from _named(compile_text, text, (stream.name,), (*at, "delete"))
        if stream.timestamp and ":" not in stream.timestamp:  # else it is a function
            at = ("streams", stream.name, "timestamp")
            yield _Use(stream.timestamp, (stream.name,), at, sure=False)
    for computation in spec.computations:
        yield from _of_computation(compile_text, computation)
        yield from _of_window(computation)
    for sink in spec.sinks:
        yield from _of_key(
            compile_text, sink.key, sink.stream, ("sinks", sink.stream, sink.kind, "by")
        )
        yield from _of_columns(sink)


def _of_key(
    compile_text: Compile, key: KeySpec, stream: str, path: tuple[str, ...]
) -> Iterator[_Use]:
    if key.plain:
        for name in key.names:
            yield _Use(name, (stream,), path)
    for name, text in zip(key.names, key.texts, strict=bool(key.texts)):
        yield from _named(compile_text, text, (stream,), (*path, name))


def _of_computation(compile_text: Compile, computation: ComputationSpec) -> Iterator[_Use]:
    path: Path = ("computations", computation.name)
    where: Path
    streams = tuple(each.stream for each in computation.inputs)
    for each in computation.inputs:
        if each.key.plain:
            where = (*path, "input", each.stream, "key")
            yield from (_Use(name, (each.stream,), where) for name in each.key.names)
    for text, inner in expressions_of(computation):
        of = (inner[1],) if inner[0] == "input" else streams
        if text.isidentifier() and _names_a_field(inner):
            yield _Use(text, of, (*path, *inner))
        else:
            yield from _named(compile_text, text, of, (*path, *inner))
    for aggregate in computation.aggregates:
        if aggregate.function not in FUNCTIONS:
            where = (*path, "aggregate", aggregate.name)
            yield from _named(compile_text, aggregate.argument, streams, where)
    match computation.work:
        case DeduplicateSpec(fields=fields):
            yield from (_Use(name, streams, (*path, "deduplicate")) for name in fields)
        case IntervalJoinSpec(froms=froms, untils=untils):
            for bound in (*froms, *untils):
                for node in ast.walk(compile_text(bound.expression).tree):
                    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                        where = (*path, "join", "within")
                        yield _Use(node.attr, (bound.stream,), where, sure=False)


def _names_a_field(inner: Path) -> bool:
    """Whether the expression there is computed with, rather than asked for: an argument of an
    aggregate, or an order. Each record must have a field named there."""
    return inner[0] == "top" or (inner[0] == "aggregate" and len(inner) == 2)


def _of_window(computation: ComputationSpec) -> Iterator[_Use]:
    """The bounds that ``window: {of: input}`` reads of each input."""
    work = computation.windowed
    if work is None or work.window.kind != "of":
        return
    window = window_from_spec(work.window)
    if isinstance(window, OfInput):
        path = ("computations", computation.name, "window")
        for each in computation.inputs:
            yield _Use(window.start, (each.stream,), path)
            yield _Use(window.end, (each.stream,), path)


def _named(
    compile_text: Compile, expression: str, streams: tuple[str, ...], path: tuple[str, ...]
) -> Iterator[_Use]:
    if expression:
        yield from (
            _Use(name, streams, path, sure=False) for name in compile_text(expression).fields
        )


def _of_columns(sink: SinkSpec) -> Iterator[_Use]:
    """Columns and folders of a sink's files and tables."""
    options = sink.options
    more = [
        name
        for option, name in (("with_key", "key"), ("with_timestamp", "timestamp"))
        if options.get(option)
    ]
    more += [str(options.get("mark", "change"))]
    folders = options.get("partition_by")
    columns = options.get("fields")
    for option, names in (
        ("partition_by", [folders] if isinstance(folders, str) else folders),
        ("fields", columns),
    ):
        for name in names if isinstance(names, Iterable) else ():
            if isinstance(name, str) and name.isidentifier():
                yield _Use(
                    name,
                    (sink.stream,),
                    ("sinks", sink.stream, sink.kind, option),
                    False,
                    tuple(more),
                )
