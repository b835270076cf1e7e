"""The parts of a pipeline that decide whether another one can continue with its state, as plain
data beside that state.

Code cannot be compared, and need not be: the behaviour of a callback may change. Its state must
stay readable by the new types. Therefore declarations of state are part of the blueprint, with the
JSON schemas of their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from millwheel.api import Computation, ListState, MapState, State
from millwheel.connect.own_functions import language_of
from millwheel.connect.python_objects import load_object
from millwheel.control.savepoints.stored_forms import stored_form
from millwheel.core.columns.stateless.flow import follows_types, types_of, types_through
from millwheel.core.pipeline.graph import Node, NodeKind, build_graph, takes_retractions
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SinkSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import (
    AggregationSpec,
    BranchesSpec,
    CallbackSpec,
    CopiesSpec,
    DeduplicateSpec,
    DictionarySpec,
    EnrichSpec,
    IntervalJoinSpec,
    JoinSpec,
    LookupSpec,
    OverSpec,
    RegularJoinSpec,
    SlicesSpec,
    StepsSpec,
    TableSpec,
    TopSpec,
    WindowCallbackSpec,
    WindowedSpec,
    Work,
)
from millwheel.errors import PipelineError


class NodeBlueprint(msgspec.Struct, frozen=True):
    """One node: its form ("source", "callback", "aggregation", …, "sink"), and its facets by
    name."""

    form: str
    facets: dict[str, Any]


class Blueprint(msgspec.Struct, frozen=True):
    """A pipeline by its nodes, and the consumers of each stream."""

    pipeline: str
    nodes: dict[str, NodeBlueprint]
    program: dict[str, str] = {}
    """Digests of all that decides results; see ``program.py``. Whether the state fits does not
    depend on them."""


def blueprint_of(spec: PipelineSpec) -> Blueprint:
    """The blueprint of a valid pipeline. Its callbacks are imported: raises PipelineError when that
    fails."""
    nodes = {name: _node(node, spec) for name, node in build_graph(spec).nodes.items()}
    # As it is read back: a tuple differs from the list that it becomes in a file.
    return msgspec.json.decode(msgspec.json.encode(Blueprint(spec.name, nodes)), type=Blueprint)


def _node(node: Node, spec: PipelineSpec) -> NodeBlueprint:
    if node.kind is NodeKind.SOURCE and node.stream is not None:
        return NodeBlueprint("source", _source(node.stream))
    if node.sink is not None:
        return NodeBlueprint("sink", _sink(node.sink))
    assert node.computation is not None
    return _computation(node.computation, spec)


def _source(stream: StreamSpec) -> dict[str, Any]:
    assert stream.source is not None
    return {
        "kind": stream.source.kind,
        "options": dict(stream.source.options),
        "timestamp": ["of arrival"]
        if stream.arrival
        else [stream.timestamp, stream.timestamp_unit_us],
        "id": stream.id,
        "schema": stream.schema,
        "fields": dict(stream.declared),
        "watermark": [stream.max_delay_us, stream.idle_after_us, stream.max_future_us],
    }


def _sink(sink: SinkSpec) -> dict[str, Any]:
    # the one that every pipeline has, in the root
    if sink.stream == DEAD_LETTERS and not sink.where:
        return {"kind": sink.kind, "options": {}, "key": key_words(sink.key)}
    return {"kind": sink.kind, "options": dict(sink.options), "key": key_words(sink.key)}


def _computation(spec: ComputationSpec, pipeline: PipelineSpec) -> NodeBlueprint:
    facets: dict[str, Any] = {
        "keys": {each.stream: key_words(each.key) for each in spec.inputs},
        "outputs": sorted(spec.outputs),
        "productions": spec.productions.value,
        "delivery": spec.delivery.value,
        "steps": msgspec.to_builtins(_steps(spec.work)),
        "settings": msgspec.to_builtins([*_called(spec), spec.max_attempts]),
        "shards": spec.shards,
        "states": _states(spec, pipeline.folder),
    }
    # The words for keys name groupings by slots.
    keys = {each.stream: each.key for each in spec.inputs}
    divided = {
        of: key.divided.value
        for of, key in keys.items()
        if key.instances > 1 and not key.divided.by_slots
    }
    if divided:
        facets["divided"] = divided
    if spec.ordered or isinstance(spec.work, DeduplicateSpec | EnrichSpec | JoinSpec):
        facets |= _pairing(spec)
    return NodeBlueprint(_FORMS[type(spec.work)], facets | _facets(spec, pipeline))


def _steps(work: Work) -> list[Any]:
    match work:
        case StepsSpec(steps=steps):
            return [*steps, False]
        case BranchesSpec(branches=branches, match_all=match_all):
            return [*branches, match_all]
    return [False]


def _called(spec: ComputationSpec) -> list[Any]:
    return ["", {}] if spec.called is None else [spec.called.callback, dict(spec.called.options)]


def _facets(spec: ComputationSpec, pipeline: PipelineSpec) -> dict[str, Any]:
    """The facets of one kind of work."""
    aggregates = {each.name: msgspec.to_builtins(each) for each in spec.aggregates}
    match spec.work:
        case WindowedSpec() as work:
            return {
                "window": {"kind": work.window.kind, **work.window.options},
                "aggregates": aggregates,
                "speaking": _firing(work),
                "columns": {each.stream: _columns(each, spec, pipeline) for each in spec.inputs},
            }
        case SlicesSpec() as work:
            options = {
                "levels_us": work.levels_us,
                "keep_us": work.keep_us,
                "time_zone": work.time_zone,
                "ttl_us": work.ttl_us,
            }
            return {
                "slices": msgspec.to_builtins([options, work.condition, work.late]),
                "aggregates": aggregates,
            }
        case DictionarySpec() as work:
            return {"dictionary": msgspec.to_builtins(work)}
        case RegularJoinSpec() | IntervalJoinSpec() as work:
            return {"pairing": [[each.stream for each in spec.inputs], msgspec.to_builtins(work)]}
        case OverSpec() as work:
            # Records lie in state with the number of their stream and the input of each aggregate.
            names = [each.stream for each in spec.inputs]
            return {"pairing": [names, msgspec.to_builtins(work)]}
        case TopSpec() as work:
            # Only where rows are taken back, all of them are kept.
            every = takes_retractions(spec, pipeline)
            return {"pairing": [_without_defaults(work), every, spec.ordered]}
        case TableSpec() as work:
            return {"pairing": [work.of, list(work.key)]}
        case CopiesSpec() as work:
            # Another limit changes no row.
            return {"pairing": [work.of, key_words(work.key), work.copies]}
    return {}


def _firing(work: WindowedSpec) -> dict[str, Any]:
    # Open windows that columns hold are in rows where results are kept. Left out without it: older
    # blueprints do not have it.
    options: dict[str, Any] = (
        {"queryable": work.queryable}
        if isinstance(work, AggregationSpec) and work.queryable
        else {}
    )
    if isinstance(work, AggregationSpec) and (work.then or work.having):
        options |= {"then": dict(work.then), "having": work.having}
    return {**msgspec.to_builtins(work.firing), "where": work.condition, **options}


def _without_defaults(work: TopSpec | EnrichSpec) -> dict[str, Any]:
    """The settings of work, without those of tables where it has none: older blueprints do not have
    them."""
    if isinstance(work, EnrichSpec) and work.broadcast is not None:
        # Another limit changes no row.
        work = replace(work, broadcast=replace(work.broadcast, limit_bytes=1))
    facets: dict[str, Any] = msgspec.to_builtins(work)
    return {name: value for name, value in facets.items() if value or name not in _OF_TABLES}


_OF_TABLES = frozenset({"upserts", "delete", "timeless", "broadcast", "of"})


def _pairing(spec: ComputationSpec) -> dict[str, Any]:
    """How records are paired or ordered."""
    deduplicate = spec.work if isinstance(spec.work, DeduplicateSpec) else None
    enrich = _without_defaults(spec.work) if isinstance(spec.work, EnrichSpec) else None
    join = spec.work.kind if isinstance(spec.work, JoinSpec) else None
    return {"pairing": msgspec.to_builtins([deduplicate, enrich, join, spec.ordered])}


_FORMS: Mapping[type[Work], str] = {
    CallbackSpec: "callback",
    WindowCallbackSpec: "callback with a window",
    AggregationSpec: "aggregation",
    SlicesSpec: "slices",
    JoinSpec: "join",
    RegularJoinSpec: "join without a window",
    IntervalJoinSpec: "join within an interval",
    EnrichSpec: "enrich",
    LookupSpec: "lookup",
    DeduplicateSpec: "deduplicate",
    OverSpec: "over",
    TopSpec: "first rows",
    DictionarySpec: "dictionary",
    TableSpec: "table",
    CopiesSpec: "copies of a table",
    BranchesSpec: "branches",
    StepsSpec: "steps",
}
"""The words for kinds of work in blueprints."""


def _columns(
    node_input: InputSpec, spec: ComputationSpec, pipeline: PipelineSpec
) -> dict[str, Any]:
    """The facets of an input that decide whether open windows are stored in rows or in columns, and
    in which."""
    stream = pipeline.stream(node_input.stream)
    facets = {"fields": dict(stream.fields), "id": stream.id, "schema": stream.schema}
    if follows_types(stream.name, pipeline):
        # Windows are open when the steps before them are changed.
        types = types_through if spec.is_change_log else types_of
        facets["follows"] = dict(types(stream.name, pipeline, language_of(pipeline).compile))
    if spec.is_change_log:
        # Savepoints from before 0.1.0 have parts that were put together: read as groups, the newest
        # part would be taken for all of them.
        facets["groups"] = "whole"
    return facets


def key_words(key: KeySpec) -> str:
    """A key extractor in words."""
    over = f", over {key.instances} instances" if key.instances > 1 else ""
    over += f", {key.divided.value}" if key.divided.by_slots else ""
    over += f", in {key.partitions} partitions" if key.partitions else ""
    over += f", in {key.copies} copies" if key.copies else ""
    over += ", null as a group" if key.nulls else ""
    if key.kind is KeyKind.RECORD:
        return f"the record's own key{over}"
    if key.kind is KeyKind.ALL:
        return f"everything in one group{over}"
    if key.texts:
        pairs = zip(key.names, key.texts, strict=True)
        return f"{', '.join(f'{name} = {text}' for name, text in pairs)}{over}"
    return f"{'function' if key.kind is KeyKind.FUNCTION else 'field'} {', '.join(key.names)}{over}"


def _states(spec: ComputationSpec, folder: str) -> dict[str, Any]:
    if spec.called is None:
        return {}
    name = spec.called.callback
    kind = load_object(name, folder)
    if not (isinstance(kind, type) and issubclass(kind, Computation)):
        raise PipelineError(
            f"{spec.where}: {name} is not a millwheel.Computation; derive the class from it"
        )
    return {each: _state(state) for each, state in declared_states(kind).items()}


def declared_states(kind: type) -> Mapping[str, State]:
    """The states that a class and its bases declare, by name."""
    states: dict[str, State] = {}
    for base in reversed(kind.__mro__):
        states.update(
            {name: value for name, value in vars(base).items() if isinstance(value, State)}
        )
    return states


def _state(state: State) -> dict[str, Any]:
    kind = (
        "list"
        if isinstance(state, ListState)
        else "map"
        if isinstance(state, MapState)
        else "value"
    )
    return {
        "kind": kind,
        "ttl_us": state.ttl_us,
        "schema": _schema(state.type),
        "stored": stored_form(state.type),
    }


def _schema(of: Any) -> Any:
    """The JSON schema of a type, or its Python name if it has none."""
    try:
        return msgspec.json.schema(of)
    except Exception:  # types that msgspec carries and JSON cannot describe; TypeError for most
        return {"python": repr(of)}
