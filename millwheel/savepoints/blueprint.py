"""The parts of a pipeline that decide whether another one can continue with its state, as plain data beside that state.

Code cannot be compared, and need not be: the behaviour of a callback may change. Its state must stay readable by the
new types. Therefore declarations of state are part of the blueprint, with the JSON schemas of their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from millwheel.api import Computation, ListState, MapState, State
from millwheel.core.pipeline.graph import Node, NodeKind, build_graph
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    InputSpec,
    KeyKind,
    KeySpec,
    PipelineSpec,
    SinkSpec,
    StreamSpec,
)
from millwheel.errors import PipelineError
from millwheel.python_objects import load_object
from millwheel.savepoints.comparing.stored_forms import stored_form


class NodeBlueprint(msgspec.Struct, frozen=True):
    """One node: its form ("source", "callback", "aggregation", …, "sink"), and its facets by name."""

    form: str
    facets: dict[str, Any]


class Blueprint(msgspec.Struct, frozen=True):
    """A pipeline by its nodes, and the consumers of each stream."""

    pipeline: str
    nodes: dict[str, NodeBlueprint]
    program: dict[str, str] = {}
    """Digests of all that decides results; see ``program.py``. Whether the state fits does not depend on them."""


def blueprint_of(spec: PipelineSpec) -> Blueprint:
    """The blueprint of a valid pipeline. Its callbacks are imported: raises PipelineError when that fails."""
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
        "timestamp": [stream.timestamp, stream.timestamp_unit_us],
        "id": stream.id,
        "schema": stream.schema,
        "fields": dict(stream.fields),
        "watermark": [stream.max_delay_us, stream.idle_after_us, stream.max_future_us],
    }


def _sink(sink: SinkSpec) -> dict[str, Any]:
    if sink.stream == DEAD_LETTERS and not sink.where:  # the one that every pipeline has, in the root
        return {"kind": sink.kind, "options": {}, "key": key_words(sink.key)}
    return {"kind": sink.kind, "options": dict(sink.options), "key": key_words(sink.key)}


def _computation(spec: ComputationSpec, pipeline: PipelineSpec) -> NodeBlueprint:
    facets: dict[str, Any] = {
        "keys": {given.stream: key_words(given.key) for given in spec.inputs},
        "outputs": sorted(spec.outputs),
        "productions": spec.productions.value,
        "delivery": spec.delivery.value,
        "steps": msgspec.to_builtins([*spec.steps, *spec.branches, spec.match_all]),
        "settings": msgspec.to_builtins([spec.callback, dict(spec.options), spec.max_attempts]),
        "shards": spec.shards,
        "states": _states(spec, pipeline.folder),
    }
    # The words for keys name groupings by slots. Left out where no key is divided: older blueprints do not know it.
    keys = {given.stream: given.key for given in spec.inputs}
    divided = {of: key.divided.value for of, key in keys.items() if key.instances > 1 and not key.divided.by_slots}
    if divided:
        facets["divided"] = divided
    if spec.window is not None:
        facets["window"] = {"kind": spec.window.kind, **spec.window.options}
        facets["aggregates"] = {each.name: msgspec.to_builtins(each) for each in spec.aggregates}
        facets["speaking"] = msgspec.to_builtins(
            {
                "trigger": spec.trigger,
                "accumulation": spec.accumulation,
                "allowed_lateness_us": spec.allowed_lateness_us,
                "output_time": spec.output_time,
                "late": spec.late,
                "where": spec.condition,
                # Open windows that columns hold are in rows where results are kept. Left out without it: older
                # blueprints do not know it.
                **({"queryable": spec.queryable} if spec.queryable else {}),
            }
        )
        facets["columns"] = {given.stream: _columns(given, pipeline) for given in spec.inputs}
    if spec.slices is not None:
        facets["slices"] = msgspec.to_builtins([spec.slices, spec.condition, spec.late])
        facets["aggregates"] = {each.name: msgspec.to_builtins(each) for each in spec.aggregates}
    if spec.deduplicate is not None or spec.enrich is not None or spec.join is not None or spec.ordered:
        facets["pairing"] = msgspec.to_builtins([spec.deduplicate, spec.enrich, spec.join, spec.ordered])
    if spec.dictionary is not None:
        facets["dictionary"] = msgspec.to_builtins(spec.dictionary)
    if spec.table is not None:
        facets["pairing"] = [spec.table.of, list(spec.table.key)]
    return NodeBlueprint(_form(spec), facets)


def _form(spec: ComputationSpec) -> str:
    if spec.join is not None:
        return "join"
    if spec.window is not None:
        return "callback with a window" if spec.callback else "aggregation"
    if spec.slices is not None:
        return "slices"
    if spec.callback:
        return "callback"
    if spec.enrich is not None:
        return "enrich"
    if spec.lookup is not None:
        return "lookup"
    if spec.deduplicate is not None:
        return "deduplicate"
    if spec.dictionary is not None:
        return "dictionary"
    if spec.table is not None:
        return "table"
    return "branches" if spec.branches else "steps"


def _columns(given: InputSpec, pipeline: PipelineSpec) -> dict[str, Any]:
    """The facets of an input that decide whether open windows are stored in rows or in columns."""
    stream = pipeline.stream(given.stream)
    return {"fields": dict(stream.fields), "id": stream.id, "schema": stream.schema}


def key_words(key: KeySpec) -> str:
    """A key extractor in words."""
    over = f", over {key.instances} instances" if key.instances > 1 else ""
    over += f", {key.divided.value}" if key.divided.by_slots else ""
    over += f", in {key.partitions} partitions" if key.partitions else ""
    if key.kind is KeyKind.RECORD:
        return f"the record's own key{over}"
    return f"{'function' if key.kind is KeyKind.FUNCTION else 'field'} {', '.join(key.names)}{over}"


def _states(spec: ComputationSpec, folder: str) -> dict[str, Any]:
    if not spec.callback:
        return {}
    kind = load_object(spec.callback, folder)
    if not (isinstance(kind, type) and issubclass(kind, Computation)):
        raise PipelineError(f"{spec.where}: {spec.callback} is no millwheel.Computation; derive the class from it")
    return {name: _state(state) for name, state in declared_states(kind).items()}


def declared_states(kind: type) -> Mapping[str, State]:
    """The states that a class and its bases declare, by name."""
    found: dict[str, State] = {}
    for base in reversed(kind.__mro__):
        found.update({name: value for name, value in vars(base).items() if isinstance(value, State)})
    return found


def _state(state: State) -> dict[str, Any]:
    kind = "list" if isinstance(state, ListState) else "map" if isinstance(state, MapState) else "value"
    return {"kind": kind, "ttl_us": state.ttl_us, "schema": _schema(state.type), "stored": stored_form(state.type)}


def _schema(of: Any) -> Any:
    """The JSON schema of a type, or its Python name if it has none."""
    try:
        return msgspec.json.schema(of)
    except Exception:  # types that msgspec carries and JSON cannot describe; TypeError for most
        return {"python": repr(of)}
