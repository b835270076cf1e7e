"""Keys and aggregates of fields with types: a type that cannot be a key, or that a function cannot
use, is refused before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from millwheel.connect.own_functions import named_alone
from millwheel.core.aggregates.functions import FUNCTIONS, make_aggregator
from millwheel.core.expressions.columns import kind_of_value
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec
from millwheel.core.pipeline.work import (
    AggregateSpec,
    EnrichSpec,
    IntervalJoinSpec,
    JoinSpec,
    RegularJoinSpec,
)
from millwheel.errors import RecordError
from millwheel.language.spec.checks.topology import find
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader
from millwheel.language.spec.typed.decimals import Fields

_MATCHING = (JoinSpec, RegularJoinSpec, IntervalJoinSpec, EnrichSpec)
_NO_KEYS = ("bool", "float")
_SAMPLES: Mapping[str, Any] = {"int": 1, "float": 1.5, "str": "text", "bool": True}


def check_field_types(
    reader: NodeReader, spec: PipelineSpec, top: YamlNode, kinds: Mapping[str, Fields]
) -> None:
    """Note every key of a field whose type cannot be that of a key, and every aggregate whose
    argument is a field of a type that its function refuses; warn where the type follows through
    computations (``kinds``) and is not declared."""
    declared = {stream: spec.stream(stream).fields for stream in kinds}
    types = {stream: _types(fields) for stream, fields in kinds.items()}
    for computation in spec.computations:
        path = ("computations", computation.name)
        for node_input in computation.inputs:
            stream = node_input.stream
            node = find(top, *path, "input", stream, "key")
            of_key = partial(_problem_of_key, spec, node_input)
            _note(reader, node, of_key(declared.get(stream, {})), of_key(types.get(stream, {})))
        _warn_of_keys(reader, spec, computation, top, types)
        for aggregate in computation.aggregates:
            of_argument = partial(_problem, computation, aggregate)
            node = find(top, *path, "aggregate", aggregate.name)
            _note(reader, node, of_argument(declared), of_argument(types))


def _note(reader: NodeReader, node: YamlNode, refused: str, warned: str) -> None:
    if refused:
        reader.bad(node, refused)
    elif warned:
        reader.problems.warn(node.line, node.path, warned)


def _types(fields: Fields) -> dict[str, str]:
    return {
        name: kind for name, kind in fields.items() if isinstance(kind, str) and kind in _SAMPLES
    }


def _problem_of_key(spec: PipelineSpec, node_input: InputSpec, types: Mapping[str, str]) -> str:
    for text in node_input.key.texts:
        kind = kind_of_value(
            text, types, named_alone(spec.functions, spec.nulls, spec.vectorized).compile
        )
        if kind in _NO_KEYS:
            return (
                f"a key cannot be {kind}, as `{text}` is by the types of fields of the stream"
                f" {node_input.stream!r}: write for example str({text}), or an expression"
                " that gives a whole number or a text"
            )
    for name in node_input.key.names if node_input.key.plain else ():
        if types.get(name) in _NO_KEYS:
            return (
                f"a key cannot be {types[name]}, as the field {name!r} of the stream"
                f" {node_input.stream!r} is: use a whole number or a text, for example key:"
                f" {{{name}: str({name})}}"
            )
    return ""


def _warn_of_keys(
    reader: NodeReader,
    spec: PipelineSpec,
    computation: ComputationSpec,
    top: YamlNode,
    types: Mapping[str, Mapping[str, str]],
) -> None:
    """Warn of a text in the key of one side and a number in that of the other, which never meet."""
    if not isinstance(computation.work, _MATCHING):
        return
    compile_text = named_alone(spec.functions, spec.nulls, spec.vectorized).compile
    first, *others = computation.inputs
    for other in others:
        for one, part in zip(_parts(first), _parts(other), strict=False):
            kinds = [
                kind_of_value(text, types.get(each.stream, {}), compile_text)
                for text, each in ((one, first), (part, other))
            ]
            if {*kinds} == {"int", "str"}:
                node = find(top, "computations", computation.name, "input", other.stream)
                words = (
                    f"`{part}` is {kinds[1]} and `{one}` of {first.stream} is {kinds[0]}: keys of"
                    " two types never meet; write int(…) or str(…) around one of them"
                )
                reader.problems.warn(node.line, node.path, words)


def _parts(node_input: InputSpec) -> Sequence[str]:
    key = node_input.key
    return key.names if key.plain else key.texts


def _problem(
    computation: ComputationSpec, aggregate: AggregateSpec, types: Mapping[str, Mapping[str, str]]
) -> str:
    name, function = aggregate.argument, aggregate.function
    if function not in FUNCTIONS:
        return ""
    for node_input in computation.inputs:
        kind = types.get(node_input.stream, {}).get(name)
        if kind is None:
            continue
        try:
            make_aggregator(function, aggregate.options).check(_SAMPLES[kind], name)
        except RecordError:
            fitting = [
                other
                for other in ("int", "float", "str")
                if other != kind and _takes(aggregate, other)
            ]
            return (
                f"{function} cannot use the field {name!r}, which is {kind} in the stream"
                f" {node_input.stream!r}; declare it as {' or '.join(fitting)}, or write an"
                f" expression, such as {{{function}: int({name})}}"
            )
        except ValueError:
            return ""
    return ""


def _takes(aggregate: AggregateSpec, kind: str) -> bool:
    try:
        make_aggregator(aggregate.function, aggregate.options).check(_SAMPLES[kind], "")
    except RecordError:
        return False
    return True
