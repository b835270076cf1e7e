"""Checks across the parts: every consumed stream has a producer, and there are no endless
cycles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from millwheel.core.machines.specs import window_from_spec
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    PipelineSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import (
    BranchesSpec,
    IntervalJoinSpec,
    JoinSpec,
    RegularJoinSpec,
    WindowedSpec,
)
from millwheel.core.windows.windows import OfInput
from millwheel.language.spec.parts.steps import step_nodes
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import unknown
from millwheel.language.spec.reading.reader import NodeReader


def check_streams(
    reader: NodeReader, spec: PipelineSpec, top: YamlNode, uncertain: frozenset[str]
) -> None:
    """Every consumed stream must have a producer; one that nothing consumes is worth a warning.

    ``uncertain`` are names that may become streams once other problems are corrected; they are not
    reported.
    """
    produced = _produced(spec)
    declared = {stream.name for stream in spec.streams}
    for stream, node in _consumers(spec, top):
        if stream in produced or stream in uncertain:
            continue
        if stream in declared:
            reader.bad(
                node,
                f"nothing produces the stream {stream!r}: give it a source, or name it as the"
                " output of a computation",
            )
        else:
            reader.bad(node, unknown("stream", stream, sorted(produced), "Streams"))
    consumed = {stream for stream, _ in _consumers(spec, top)}
    for stream, steps in produced.items():
        if stream not in consumed and stream != DEAD_LETTERS:
            node = find(top, *steps)
            reader.problems.warn(
                node.line,
                node.path,
                f"nothing consumes the stream {stream!r}; its records are dropped",
            )
    sourceless = spec.streams and not any(stream.source for stream in spec.streams)
    if sourceless and not reader.problems.concerns("streams"):
        reader.bad(
            find(top, "streams"),
            "no stream has a source, so nothing would ever happen; add source: {files: {path: …}}",
        )


def check_endless(reader: NodeReader, spec: PipelineSpec, top: YamlNode) -> None:
    """Warn where an input never ends: of a ``global`` window, which emits nothing by itself, but
    may be asked; and of a join that keeps its records for ever."""
    if reader.problems.found:
        return
    graph = build_graph(spec)
    endless = {
        f"source.{stream.name}"
        for stream in spec.streams
        if stream.source and never_ends(stream.source)
    }
    for computation in spec.computations:
        held = sorted(endless & graph.roots(computation.name))
        _check_kept(reader, computation, held, top)
        work = computation.windowed
        if work is None or work.window.kind != "global" or work.firing.trigger is not None:
            continue
        if held:
            node = find(top, "computations", computation.name, "window")
            reader.problems.warn(
                node.line,
                node.path,
                "a global window fires at the end of its input, and"
                f" {held[0].removeprefix('source.')!r} has none: it emits nothing. Write a trigger,"
                " such as {after_processing_time: 1m}, or a window of limited length",
            )


def _check_kept(
    reader: NodeReader, computation: ComputationSpec, held: Sequence[str], top: YamlNode
) -> None:
    work = computation.work
    if not isinstance(work, RegularJoinSpec) or None not in work.ttls_us or not held:
        return
    node = find(top, "computations", computation.name, "join")
    streams = zip(computation.inputs, work.ttls_us, strict=True)
    kept = " and ".join(each.stream for each, ttl_us in streams if ttl_us is None)
    reader.problems.warn(
        node.line,
        node.path,
        f"keeps every record of {kept}, and {held[0].removeprefix('source.')!r} never ends, so its"
        f" state grows for ever. Write how long a record may wait for its partner, such as {{kind:"
        f" {work.kind.value}, ttl: 7d}}, or join in windows",
    )


def check_windows_of_input(reader: NodeReader, spec: PipelineSpec, top: YamlNode) -> None:
    """``window: {of: input}`` behind count windows, which the watermark may overtake, and behind
    joins that pass results of windows on later: whether the input's window is over when its result
    comes would depend on the speed of the watermark."""
    producers: dict[str, list[ComputationSpec]] = {}
    for computation in spec.computations:
        for stream in computation.outputs:
            producers.setdefault(stream, []).append(computation)
    for computation in spec.computations:
        work = computation.windowed
        if work is None or work.window.kind != "of":
            continue
        for each in computation.inputs:
            _warn_of_source(reader, computation, spec.stream(each.stream), top)
            for maker in _windows_of(each.stream, producers, set()):
                made_in = maker.work_as(WindowedSpec)
                if made_in.window.kind == "count" and made_in.firing.output_time != "earliest":
                    reader.bad(
                        find(top, "computations", computation.name, "window"),
                        f"{maker.name} has count windows, which the watermark may overtake before"
                        " they are full: whether their results came too late for their own window"
                        f" would be chance; write output_time: earliest there ({maker.name}"
                        " then holds the watermark), or another window here",
                    )
            for join in _later_than_their_windows(each.stream, producers, set()):
                reader.bad(
                    find(top, "computations", computation.name, "window"),
                    f"{join.name} passes results of windows on once it is certain whether they have"
                    " partners, and the watermark may have passed their own windows by then:"
                    " whether they came too late for these would be chance; write window:"
                    f" {{of: input}} in {join.name}, too, or another window here",
                )


def _warn_of_source(
    reader: NodeReader, computation: ComputationSpec, stream: StreamSpec, top: YamlNode
) -> None:
    """Warn of records that no window has made, unless they are declared to have its bounds."""
    window = window_from_spec(computation.work_as(WindowedSpec).window)
    if stream.source is None or stream.schema or not isinstance(window, OfInput):
        return
    bounds = (window.start, window.end)
    if not {*bounds} <= {*stream.fields, *stream.times}:
        node = find(top, "computations", computation.name, "window")
        words = (
            f"{stream.name} comes from a source, not from a window: a record without the fields"
            f" {' and '.join(bounds)} becomes a dead letter; write another window, such as"
            " {tumbling: 1m}, or declare these fields as int"
        )
        reader.problems.warn(node.line, node.path, words)


def _windows_of(
    stream: str, producers: Mapping[str, Sequence[ComputationSpec]], seen: set[str]
) -> Iterator[ComputationSpec]:
    """The computations whose windows the records of a stream are results of."""
    for each in producers.get(stream, ()):
        if each.name in seen:
            continue
        seen.add(each.name)
        if each.windowed is not None:
            yield each
            continue
        for node_input in each.inputs:
            yield from _windows_of(node_input.stream, producers, seen)


def _later_than_their_windows(
    stream: str, producers: Mapping[str, Sequence[ComputationSpec]], seen: set[str]
) -> Iterator[ComputationSpec]:
    """The joins that give results of windows as they came (``semi``, ``anti``), at a time that
    their windows do not have."""
    for each in producers.get(stream, ()):
        if each.name in seen:
            continue
        seen.add(each.name)
        work, first = each.work, each.inputs[0].stream
        waits = (
            isinstance(work, JoinSpec | IntervalJoinSpec | RegularJoinSpec)
            and not work.kind.in_pairs
        )
        if waits and not (isinstance(work, JoinSpec) and work.window.kind == "of"):
            if any(_windows_of(first, producers, set())):
                yield each
        elif waits:
            yield from _later_than_their_windows(first, producers, seen)
        elif each.windowed is None:
            for node_input in each.inputs:
                yield from _later_than_their_windows(node_input.stream, producers, seen)


def never_ends(source: SourceSpec) -> bool:
    """Whether a source has records for as long as anybody reads it."""
    if source.kind == "generator":
        return not source.options.get("count")
    if source.kind == "kafka":
        return not source.options.get("until")
    return source.kind == "injection" or bool(source.options.get("follow"))


def uncertain_names(reader: NodeReader, top: YamlNode) -> frozenset[str]:
    """All words of the parts with problems, except inputs and sinks: any of them may be the name of
    a stream."""
    words: set[str] = set()
    for path in reader.problems.paths:
        steps = [step for step in re.split(r"[.\[]", path)[:3] if step]
        if steps[:1] == ["sinks"] or steps[2:] == ["input"] or not steps:
            continue
        words.update(steps)
        words.update(_words(find(top, *steps)))
    return frozenset(words)


def _words(node: YamlNode) -> Iterable[str]:
    if isinstance(node.value, dict):
        for name, child in node.value.items():
            yield name
            if name != "input":
                yield from _words(child)
    elif isinstance(node.value, list):
        for child in node.value:
            yield from _words(child)
    else:
        yield node.text


def _produced(spec: PipelineSpec) -> dict[str, tuple[str, ...]]:
    """Streams with a source or a producer, each with its path in the document."""
    producers: dict[str, tuple[str, ...]] = {
        stream.name: ("streams", stream.name) for stream in spec.streams if stream.source
    }
    for computation in spec.computations:
        side = computation.late_side
        for stream in computation.outputs:
            field = (
                ("branch", stream) if isinstance(computation.work, BranchesSpec) else ("output",)
            )
            producers.setdefault(stream, ("computations", computation.name, *field))
        if side:
            producers.setdefault(side, ("computations", computation.name, "late"))
    return {**producers, DEAD_LETTERS: ()}


def _consumers(spec: PipelineSpec, top: YamlNode) -> Iterable[tuple[str, YamlNode]]:
    for computation in spec.computations:
        for node_input in computation.inputs:
            yield (
                node_input.stream,
                find(top, "computations", computation.name, "input", node_input.stream),
            )
    for sink in spec.sinks:
        yield sink.stream, find(top, "sinks", sink.stream)


def check_cycles(
    reader: NodeReader, spec: PipelineSpec, top: YamlNode, has_timer: Callable[[str], bool]
) -> None:
    """Every cycle must contain a callback with timers; one of several computations is worth a
    warning.

    Records may go round only through ``process_timer``: without one a record could chase itself at
    full speed for ever. ``has_timer(computation)`` is True if its class defines ``process_timer``.
    """
    edges = _edges(spec)
    plain = {
        name: [after for after in edges[name] if not has_timer(after)]
        for name in edges
        if not has_timer(name)
    }
    for cycle in _cycles(plain):
        way = " -> ".join([*cycle, cycle[0]])
        text = (
            f"the cycle {way} has no timer: its records would go round for ever. Break it, or let"
            " one of its callbacks keep records in state and send them on from process_timer"
        )
        reader.bad(find(top, "computations", cycle[0], "output"), text)
    for cycle in _cycles(
        {name: [after for after in afters if after != name] for name, afters in edges.items()}
    ):
        node = find(top, "computations", cycle[0], "output")
        text = (
            f"event time stands still in the cycle {' -> '.join([*cycle, cycle[0]])}: its timers"
            " must be set by the wall clock (Domain.PROCESSING), and the run does not end by"
            " itself; one computation that consumes its own output has neither limit"
        )
        reader.problems.warn(node.line, node.path, text)


def _edges(spec: PipelineSpec) -> dict[str, list[str]]:
    """Each computation with its direct consumers, dead letters left out."""
    graph = build_graph(spec)
    names = [computation.name for computation in spec.computations]
    return {
        name: [
            after
            for stream in graph.nodes[name].outputs
            if stream != DEAD_LETTERS
            for after in graph.consumers.get(stream, ())
            if after in graph.nodes and graph.nodes[after].computation is not None
        ]
        for name in names
    }


def _cycles(edges: Mapping[str, list[str]]) -> Iterable[list[str]]:
    """For every group of nodes that reach each other, one shortest cycle."""
    reported: set[str] = set()
    for start in edges:
        cycle = _way_back(start, edges)
        if cycle and not reported & set(cycle):
            reported |= set(cycle)
            yield cycle


def _way_back(start: str, edges: Mapping[str, list[str]]) -> list[str]:
    """The shortest path from a node back to itself; empty if there is none."""
    came_from: dict[str, str] = {}
    frontier = [start]
    while frontier:
        reached = []
        for name in frontier:
            for after in edges.get(name, ()):
                if after == start:
                    return _path(name, start, came_from)
                if after not in came_from:
                    came_from[after] = name
                    reached.append(after)
        frontier = reached
    return []


def _path(name: str, start: str, came_from: Mapping[str, str]) -> list[str]:
    way = [name]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1]


def find(top: YamlNode, *steps: str) -> YamlNode:
    """The node at a path, or the nearest one above it that exists. ``steps`` and a number lead to
    that step of a computation, written in a list of steps or not."""
    node, rest = top, [*steps]
    while rest:
        step = rest.pop(0)
        if step == "steps" and rest and rest[0].isdigit():
            nodes, at = [*step_nodes(node)], int(rest.pop(0))
            if at >= len(nodes):
                return node
            node = nodes[at]
        elif isinstance(node.value, dict) and step in node.value:
            node = node.value[step]
        elif isinstance(node.value, list):
            return next((item for item in node.value if item.text == step), node)
        else:
            return node
    return node
