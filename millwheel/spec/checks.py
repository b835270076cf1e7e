"""What must hold between the parts of a pipeline: streams that exist, code that loads, no endless circles."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from millwheel.api import Computation
from millwheel.core.graph import Graph, build_graph
from millwheel.core.spec import DEAD_LETTERS, ComputationSpec, KeyKind, PipelineSpec
from millwheel.errors import SetupError
from millwheel.spec.document import Section, hint
from millwheel.spec.loading import load_object

_log = logging.getLogger(__name__)


def check_streams(spec: PipelineSpec, document: Section) -> None:
    """Every consumed stream has a producer; what nobody consumes is only warned about."""
    produced = {stream.name for stream in spec.streams if stream.source is not None} | {DEAD_LETTERS}
    for computation in spec.computations:
        produced |= set(computation.outputs)
        produced |= {computation.late[5:]} if computation.late.startswith("side:") else set()
    computations = document.section("computations")
    for computation in spec.computations:
        inputs = computations.section(computation.name)
        for given in computation.inputs:
            if given.stream not in produced:
                text = f"stream {given.stream!r} is produced by no source and no computation{hint(given.stream, produced)}"
                inputs.bad("input", text)
    sinks = document.section("sinks")
    for sink in spec.sinks:
        if sink.stream not in produced:
            sinks.bad(sink.stream, f"stream {sink.stream!r} is produced by no source and no computation{hint(sink.stream, produced)}")
    consumed = {given.stream for c in spec.computations for given in c.inputs} | {sink.stream for sink in spec.sinks}
    for stream in sorted(produced - consumed - {DEAD_LETTERS}):
        _log.warning("%s: stream %r is consumed by nobody; its records are counted and dropped", spec.file, stream)


def check_code(spec: PipelineSpec, document: Section) -> None:
    """Every class and function that is named can be loaded."""
    streams, computations = document.section("streams"), document.section("computations")
    for stream in spec.streams:
        section = streams.section(stream.name)
        if ":" in stream.timestamp:
            _load(section, "timestamp", stream.timestamp, spec.folder)
        if stream.schema:
            _load(section, "schema", stream.schema, spec.folder)
    for computation in spec.computations:
        section = computations.section(computation.name)
        if ":" in computation.callback:
            kind = _load(section, "callback", computation.callback, spec.folder)
            if kind is not None and not (isinstance(kind, type) and issubclass(kind, Computation)):
                section.bad("callback", f"{computation.callback} is no class derived from millwheel.Computation")
        for given in computation.inputs:
            if given.key.kind is KeyKind.FUNCTION:
                _load(section, "input", given.key.names[0], spec.folder)
        for aggregate in computation.aggregates:
            if ":" in aggregate.function:
                _load(section, "aggregate", aggregate.function, spec.folder)


def _load(section: Section, name: str, what: str, folder: str) -> object | None:
    try:
        found: object = load_object(what, folder)
        return found
    except SetupError as ex:
        section.bad(name, str(ex))
        return None


def check_cycles(spec: PipelineSpec, document: Section, with_code: bool) -> None:
    """A cycle needs a computation with timers, or its records would go round without any pause."""
    graph = build_graph(spec)
    by_name = {computation.name: computation for computation in spec.computations}
    computations = document.section("computations")
    for cycle in _cycles(graph):
        if not any(_has_timers(by_name[name], spec.folder, with_code) for name in cycle):
            text = (
                f"the cycle {' -> '.join((*cycle, cycle[0]))} has no timer: records would go round for ever; "
                "break it, or let one of its callbacks send them on from process_timer"
            )
            computations.bad(cycle[0], text)


def _has_timers(computation: ComputationSpec, folder: str, with_code: bool) -> bool:
    if not computation.callback:
        return False
    if not with_code:
        return True
    try:
        kind = load_object(computation.callback, folder)
    except SetupError:
        return True  # reported already
    return getattr(kind, "process_timer", None) is not Computation.process_timer


def _cycles(graph: Graph) -> Iterator[tuple[str, ...]]:
    """One cycle for every computation that can reach itself, each cycle once."""
    follows = {
        name: [c for stream in node.outputs if stream != DEAD_LETTERS for c in graph.consumers.get(stream, ())]
        for name, node in graph.nodes.items()
    }
    seen: set[frozenset[str]] = set()
    for start in follows:
        path = _way_back(start, follows)
        if path and frozenset(path) not in seen:
            seen.add(frozenset(path))
            yield path


def _way_back(start: str, follows: dict[str, list[str]]) -> tuple[str, ...]:
    """The shortest way from a node to itself; empty when there is none."""
    paths: list[tuple[str, ...]] = [(start,)]
    visited: set[str] = set()
    while paths:
        path = paths.pop(0)
        for after in follows[path[-1]]:
            if after == start:
                return path
            if after not in visited:
                visited.add(after)
                paths.append((*path, after))
    return ()
