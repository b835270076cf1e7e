"""Keys and aggregates of declared fields: a type that cannot be a key, or that a function cannot
use, is refused before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millwheel.connect.own_functions import named_alone
from millwheel.core.aggregates.functions import FUNCTIONS, make_aggregator
from millwheel.core.expressions.columns import kind_of_value
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.errors import RecordError
from millwheel.language.spec.checks.topology import find
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader

_NO_KEYS = ("bool", "float")
_SAMPLES: Mapping[str, Any] = {"int": 1, "float": 1.5, "str": "text", "bool": True}


def check_field_types(reader: NodeReader, spec: PipelineSpec, top: YamlNode) -> None:
    """Note every key of a field whose type is none of a key, and every aggregate whose argument is
    a field of a type that its function refuses."""
    for computation in spec.computations:
        for node_input in computation.inputs:
            problem = _problem_of_key(spec, node_input)
            if problem:
                reader.bad(
                    find(top, "computations", computation.name, "input", node_input.stream, "key"),
                    problem,
                )
        for aggregate in computation.aggregates:
            problem = _problem(spec, computation, aggregate)
            if problem:
                reader.bad(
                    find(top, "computations", computation.name, "aggregate", aggregate.name),
                    problem,
                )


def _problem_of_key(spec: PipelineSpec, node_input: InputSpec) -> str:
    declared = spec.stream(node_input.stream).fields
    for text in node_input.key.texts:
        kind = kind_of_value(
            text, declared, named_alone(spec.functions, spec.nulls, spec.vectorized).compile
        )
        if kind in _NO_KEYS:
            return (
                f"a key cannot be {kind}, as `{text}` is by the types that the stream"
                f" {node_input.stream!r} declares: write for example str({text}), or an expression"
                " that gives a whole number or a text"
            )
    for name in node_input.key.names if node_input.key.plain else ():
        if declared.get(name) in _NO_KEYS:
            return (
                f"a key cannot be {declared[name]}, as which the stream {node_input.stream!r}"
                f" declares the field {name!r}: use str, int or bytes, for example with a `key:"
                " module:function` that converts it"
            )
    return ""


def _problem(spec: PipelineSpec, computation: ComputationSpec, aggregate: AggregateSpec) -> str:
    name, function = aggregate.argument, aggregate.function
    if function not in FUNCTIONS:
        return ""
    for node_input in computation.inputs:
        kind = spec.stream(node_input.stream).fields.get(name)
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
                f"{function} cannot use the field {name!r}, which the stream {node_input.stream!r}"
                f" declares as {kind}; declare it as {' or '.join(fitting)}, or write an"
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
