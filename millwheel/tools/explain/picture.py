"""A pipeline as boxes and arrows: the content of every drawing of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from millwheel.connect.own_functions import named_alone
from millwheel.connect.python_objects import load_object
from millwheel.core.expressions.language import formula_of
from millwheel.core.instants.time_forms import UNITS
from millwheel.core.model.times import duration_text
from millwheel.core.order.arrival import CURE, by_arrival
from millwheel.core.order.chains import chains_of
from millwheel.core.order.labels import labels_of
from millwheel.core.pipeline.graph import Graph, Node, NodeKind, build_graph
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    AggregationStage,
    ComputationSpec,
    PipelineSpec,
    QuerySpec,
    SinkSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import (
    AggregationSpec,
    CallbackSpec,
    EnrichSpec,
    IntervalJoinSpec,
    JoinSpec,
    LookupSpec,
    OverSpec,
    RegularJoinSpec,
    SlicesSpec,
    TopSpec,
    WindowCallbackSpec,
    WindowedSpec,
    Work,
)
from millwheel.core.windows.panes import Accumulation
from millwheel.language.spec.callback_code import LoadedCode
from millwheel.tools.explain import words
from millwheel.tools.explain.forms import forms_of
from millwheel.tools.explain.local_combine import combined_of

_MODE = ("mode", "by")
"""Options of a sink that decide how changed rows are written."""


class BoxKind(Enum):
    """The kind of node that a box shows."""

    SOURCE = "source"
    WINDOW = "window"
    CHANGE_LOG = "change log"
    CALLBACK = "callback"
    STEPS = "steps"
    JOIN = "join"
    ORDERED = "rows in order"
    ENRICH = "enrich"
    SINK = "sink"
    DEAD_LETTERS = "dead letters"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class Box:
    """A node. ``lines`` describe it, ``note`` is the small print, ``where`` its line in the user's
    file."""

    name: str
    kind: BoxKind
    title: str
    lines: tuple[str, ...] = ()
    note: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A stream from the box that fills it to one that consumes it; ``key`` is in words, "" for the
    producer's."""

    source: str
    target: str
    stream: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes in the order of the pipeline, and arrows between them by name."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    def box(self, name: str) -> Box:
        """The box of that name."""
        return next(box for box in self.boxes if box.name == name)


def picture_of(spec: PipelineSpec) -> Picture:
    """The picture of a valid pipeline. Paths are relative to its folder, or to the working
    directory."""
    graph = build_graph(spec)
    forms = forms_of(spec, graph, lambda name: load_object(name, spec.folder))
    combined = combined_of(spec, graph, lambda name: load_object(name, spec.folder))
    code = LoadedCode(lambda name: load_object(name, spec.folder))
    arrival = by_arrival(graph, code)
    chains = chains_of(graph, spec, labels_of(graph, code).users)
    boxes = []
    for node in graph.nodes.values():
        box, order = _box(node, graph, spec), _order_text(node, arrival.get(node.name, ""))
        boxes.append(
            replace(
                box,
                lines=(
                    *box.lines,
                    *order,
                    forms[node.name],
                    *words.chain_texts(node.name, chains),
                    *combined[node.name],
                ),
            )
        )
    arrows = list(_arrows(graph))
    if any(arrow.source == DEAD_LETTERS for arrow in arrows):
        boxes.append(
            Box(
                DEAD_LETTERS, BoxKind.DEAD_LETTERS, "all nodes", ("records that could not be used",)
            )
        )
    compile_text = named_alone(spec.functions).compile
    for query in spec.queries:
        boxes.append(_query(query))
        arrows += [
            Arrow(name, boxes[-1].name, "asked")
            for name in formula_of(query.formula, compile_text).computations
        ]
    return Picture(spec.name, tuple(boxes), tuple(arrows))


def _order_text(node: Node, why: str) -> list[str]:
    """Where the order of arrival may decide what a callback does, and the cure."""
    computation = node.computation
    if computation is None or not isinstance(computation.work, CallbackSpec) or computation.ordered:
        return []
    return [f"in the order of arrival: {why}; {CURE}"] if why else []


def _arrows(graph: Graph) -> Iterator[Arrow]:
    """Dead letters come from every node: they are drawn as coming from a box of their own."""
    for node in graph.nodes.values():
        for node_input in node.inputs:
            key = words.key_text(node_input.key)
            if node_input.stream == DEAD_LETTERS:
                yield Arrow(DEAD_LETTERS, node.name, node_input.stream, key)
                continue
            for producer in graph.nodes.values():
                if node_input.stream in producer.outputs:
                    yield Arrow(producer.name, node.name, node_input.stream, key)


def _box(node: Node, graph: Graph, spec: PipelineSpec) -> Box:
    if node.stream is not None:
        return _source(node.name, node.stream, spec)
    if node.sink is not None:
        return _sink(node.name, node.sink, spec)
    assert node.computation is not None
    return _computation(node.computation, graph)


# --- the ends -------------------------------------------------------------------------------------


def _source(name: str, stream: StreamSpec, spec: PipelineSpec) -> Box:
    assert stream.source is not None
    lines = [_end(stream.source.kind, stream.source.options, spec.folder)]
    if stream.arrival:
        lines.append("timestamp: time of arrival")
    elif stream.timestamp:
        units = [name for name, us in UNITS.items() if us == stream.timestamp_unit_us]
        lines.append(
            f"timestamp {stream.timestamp}"
            + (f" in {units[0]}" if stream.timestamp_unit_us > 1 else "")
        )
    if stream.timeless:
        lines.append("rows without times; consumers that need them wait for the last")
    if stream.id:
        lines.append(f"id {stream.id}, copies within {duration_text(stream.id_horizon_us)}")
    if stream.schema:
        lines.append(f"schema {stream.schema}")
    lines += words.types_texts(stream)
    lines.append(words.watermark_text(stream))
    return Box(name, BoxKind.SOURCE, stream.name, tuple(lines), where=_where(stream.where))


def _sink(name: str, sink: SinkSpec, spec: PipelineSpec) -> Box:
    text = _end(
        sink.kind,
        {name: value for name, value in sink.options.items() if name not in _MODE},
        spec.folder,
    )
    return Box(
        name, BoxKind.SINK, sink.stream, (text + _mode(sink.options),), where=_where(sink.where)
    )


def _mode(options: Mapping[str, Any]) -> str:
    """``, upsert by page``; nothing for rows that are only appended."""
    mode, by = str(options.get("mode", "append")), options.get("by") or ()
    fields = f" by {', '.join([by] if isinstance(by, str) else map(str, by))}" if by else ""
    return "" if mode == "append" and not fields else f", {mode}{fields}"


def _query(query: QuerySpec) -> Box:
    window = "" if query.window_us is None else f", of {duration_text(query.window_us)}"
    return Box(
        f"query.{query.name}",
        BoxKind.QUERY,
        query.name,
        (query.formula + window,),
        where=_where(query.where),
    )


def _end(kind: str, options: Mapping[str, Any], folder: str) -> str:
    """``files jsonl: out/alerts``; the options that matter most."""
    paths = options.get("path", ())
    short_paths = [
        _shortened(path, folder) for path in ([paths] if isinstance(paths, str) else paths)
    ]
    follow = " as they grow" if options.get("follow") else ""
    head = " ".join([kind, *([str(options["format"])] if "format" in options else [])]) + follow
    if short_paths:
        return f"{head}: {', '.join(short_paths)}"
    rest = ", ".join(f"{name}={value}" for name, value in options.items() if name != "format")
    return f"{head}: {rest}" if rest else head


def _where(location: str) -> str:
    """File name and line, without the folder."""
    return location.rpartition("/")[2]


def _shortened(path: str, folder: str) -> str:
    for base in (folder, os.getcwd()):
        if Path(path).is_relative_to(base):
            return str(Path(path).relative_to(base))
    return path


# --- computations ---------------------------------------------------------------------------------


def _computation(computation: ComputationSpec, graph: Graph) -> Box:
    match computation.work:
        case WindowedSpec() as work:
            kind, lines = (
                BoxKind.CHANGE_LOG if computation.is_change_log else BoxKind.WINDOW,
                list(_window(computation, work, _delay_us(computation.name, graph))),
            )
            if computation.stage is AggregationStage.PARTIAL:
                read = _is_read(computation.name, graph)
                lines.append(words.division_text(computation.inputs[0].key, read))
        case SlicesSpec() as work:
            kind, lines = BoxKind.WINDOW, list(_slices(computation, work))
        case CallbackSpec() as work:
            kind, lines = BoxKind.CALLBACK, [_callback(work)]
        case work:
            kind, lines = _kind(work), list(words.work_texts(work))
    if computation.ordered:
        lines.append("in the order of timestamps")
    note = words.guarantee_text(computation)
    return Box(
        computation.name, kind, computation.name, tuple(lines), note, _where(computation.where)
    )


def _kind(work: Work) -> BoxKind:
    match work:
        case EnrichSpec() | LookupSpec():
            return BoxKind.ENRICH
        case RegularJoinSpec() | IntervalJoinSpec():
            return BoxKind.JOIN
        case TopSpec() | OverSpec():
            return BoxKind.ORDERED
    return BoxKind.STEPS


def _is_read(name: str, graph: Graph) -> bool:
    """Whether the records of a node come from a source that reads them, and may read them again."""
    sources = (graph.nodes[feeder].stream for feeder in graph.feeders[name])
    return any(
        each is not None and each.source is not None and each.source.kind != "injection"
        for each in sources
    )


def _callback(called: CallbackSpec) -> str:
    options = ", ".join(f"{name}={value}" for name, value in called.options.items())
    code = words.code_text(called.callback)
    return f"{code}({options})" if options else code


def _slices(computation: ComputationSpec, slices: SlicesSpec) -> Iterator[str]:
    yield words.slices_text(slices)
    if computation.condition:
        yield f"where {computation.condition}"
    yield from (words.aggregate_text(aggregate) for aggregate in computation.aggregates)
    yield "answers queries"
    if late := words.late_text(computation):
        yield late


def _window(computation: ComputationSpec, work: WindowedSpec, delay_us: int) -> Iterator[str]:
    yield words.window_text(work.window)
    if computation.condition:
        yield f"where {computation.condition}"
    yield from (words.aggregate_text(aggregate) for aggregate in computation.aggregates)
    if isinstance(work, AggregationSpec):
        yield from (f"then {name} = {text}" for name, text in work.then.items())
        if work.having:
            yield f"having {work.having}"
    if computation.stage is not AggregationStage.WHOLE:
        yield words.stage_text(computation.stage)
    if isinstance(work, WindowCallbackSpec):
        yield _callback(work.callback)
    elif isinstance(work, JoinSpec):
        *first, last = (each.stream for each in computation.inputs)
        yield f"{work.kind.value} join of {', '.join(first)} and {last}"
    elif not computation.aggregates:
        yield "result = the records"
    firing = work.firing
    if computation.is_change_log:
        back = firing.accumulation == Accumulation.RETRACTING.value
        each = "takes back the version before it" if back else "replaces the version before it"
        yield f"emits {words.repeated_text(firing.trigger)}; each version {each}"
        return
    if firing.trigger is not None:
        yield f"fires {words.trigger_text(firing.trigger)}"
    elif work.window.kind not in ("count", "global"):
        yield f"fires {duration_text(delay_us)} after its end" if delay_us else "fires at its end"
    again = firing.trigger is not None or firing.allowed_lateness_us or firing.late == "refire"
    if isinstance(work, JoinSpec) and work.changes:
        yield "emits what has changed since it fired before"
    elif again or firing.accumulation != "discarding":
        yield firing.accumulation
    if late := words.late_text(computation):
        yield late
    if firing.output_time != "end_of_window":
        yield f"output time {firing.output_time.replace('_', ' ')}"


def _delay_us(name: str, graph: Graph) -> int:
    """How far the watermark of a node lies behind the newest records: the largest delay of the
    sources it depends on."""
    delay, seen, waiting = 0, {name}, [name]
    while waiting:
        node = graph.nodes[waiting.pop()]
        if node.kind is NodeKind.SOURCE and node.stream is not None:
            delay = max(delay, node.stream.max_delay_us)
        waiting += [feeder for feeder in graph.feeders[node.name] if feeder not in seen]
        seen.update(waiting)
    return delay
