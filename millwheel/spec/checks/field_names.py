"""Names of fields in keys, aggregates and sinks, against what the stream declares.

A class (``schema:``) has all fields that a record can have, so another name is an error. ``fields:`` declares the types
of some of them: there a name that nearly is a declared one is only a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from millwheel.core.aggregates.functions import FUNCTIONS
from millwheel.core.pipeline.spec import ComputationSpec, KeyKind, KeySpec, PipelineSpec
from millwheel.spec.checks.topology import find
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.problems import did_you_mean
from millwheel.spec.reading.reader import NodeReader

_NEARLY = 0.75  # similar enough to be the same name, misspelt

Classes = Mapping[str, Sequence[str]]
"""Stream to the fields of its class, for streams that have one."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A field of some streams, used at a place in the file."""

    name: str
    streams: tuple[str, ...]
    path: tuple[str, ...]


def check_field_names(reader: NodeReader, spec: PipelineSpec, top: YamlNode, classes: Classes) -> None:
    """Note every name that no record of its streams can have."""
    declared = {stream.name: list(stream.fields) for stream in spec.streams if stream.fields}
    for use in _uses(spec):
        node = find(top, *use.path)
        if all(stream in classes for stream in use.streams):
            known = sorted({field for stream in use.streams for field in classes[stream]})
            if use.name not in known:
                hint = did_you_mean(use.name, known)
                reader.bad(node, f"{_streams(use.streams)} no field {use.name!r}{hint}; known: {', '.join(known)}")
            continue
        names = [field for stream in use.streams for field in (*declared.get(stream, ()), *classes.get(stream, ()))]
        close = get_close_matches(use.name, names, 1, _NEARLY)
        if names and use.name not in names and close:
            words = f"{_streams(use.streams)} no declared field {use.name!r}; did you mean {close[0]!r}?"
            reader.problems.warn(node.line, node.path, words)


def _streams(names: Sequence[str]) -> str:
    return f"the stream {names[0]!r} has" if len(names) == 1 else f"the streams {', '.join(map(repr, names))} have"


def _uses(spec: PipelineSpec) -> Iterator[_Use]:
    for computation in spec.computations:
        for given in computation.inputs:
            path = ("computations", computation.name, "input", given.stream, "key")
            yield from _of_key(given.key, given.stream, path)
        yield from _of_aggregates(computation)
    for sink in spec.sinks:
        yield from _of_key(sink.key, sink.stream, ("sinks", sink.stream, sink.kind, "key"))


def _of_key(key: KeySpec, stream: str, path: tuple[str, ...]) -> Iterator[_Use]:
    if key.kind in (KeyKind.FIELD, KeyKind.FIELDS):
        for name in key.names:
            yield _Use(name, (stream,), path)


def _of_aggregates(computation: ComputationSpec) -> Iterator[_Use]:
    """Arguments that are the name of a field. Expressions are looked at when they run."""
    streams = tuple(given.stream for given in computation.inputs)
    for aggregate in computation.aggregates:
        if aggregate.function in FUNCTIONS and aggregate.argument.isidentifier():
            yield _Use(aggregate.argument, streams, ("computations", computation.name, "aggregate", aggregate.name))
