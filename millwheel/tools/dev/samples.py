"""The first records of each source, or synthetic records made from the pipeline's declarations."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from millwheel.connect.kinds import build_source
from millwheel.connect.python_objects import load_object
from millwheel.connect.sources.base import Source
from millwheel.connect.sources.generator import build_generator
from millwheel.core.aggregates.functions import orders_of
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.core.model.times import SECOND
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec, StreamSpec
from millwheel.core.pipeline.work import BranchesSpec, StepsSpec
from millwheel.errors import MillwheelError

UNSET = "no-value-for-"
"""The prefix of placeholders for parameters without a value."""
_FIRST_US = 1_767_225_600 * SECOND  # made-up records begin with 2026
_KEYS = 5  # values of a made-up key
# of the clock of a generator between two reads: it has a second's records ready
_JUMP_US = 10 * SECOND
_IDLE = 20  # reads without a record, after which a source counts as empty for now


@dataclass(frozen=True, slots=True)
class Sample:
    """Records of one stream by partition, as its source gives them, with times in µs; their origin,
    and the rejected parts of the input."""

    stream: str
    origin: str
    records: Mapping[str, list[Any]]
    rejects: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many records there are."""
        return sum(map(len, self.records.values()))


def samples_of(spec: PipelineSpec, files: Mapping[str, str], most: int) -> list[Sample]:
    """A sample of each stream with a source. ``files`` names files of JSON lines, by stream."""
    return [
        _sample(stream, spec, files.get(stream.name, ""), most)
        for stream in spec.streams
        if stream.source
    ]


def _sample(stream: StreamSpec, spec: PipelineSpec, file: str, most: int) -> Sample:
    assert stream.source is not None
    if file:
        lines = Path(file).read_bytes().splitlines()[:most]
        types = FieldTypes({**stream.times, **stream.decimals})
        decoder = (
            msgspec.json.Decoder(float_hook=Decimal) if types.decimals else msgspec.json.Decoder()
        )
        records = [decoder.decode(line) for line in lines if line.strip()]
        maps = [each for each in records if isinstance(each, dict)]
        wrong = types.check(maps)
        unread = {id(maps[index]) for index in wrong}
        values = [each for each in records if id(each) not in unread]
        return Sample(stream.name, f"from {file}", {file: values}, [*wrong.values()])
    why = "it is given its records from outside"
    if UNSET in str(stream.source.options):
        why = "its parameters have no value"
    elif stream.source.kind != "injection":
        try:
            sample = _read(stream, _source(stream, spec.folder), most)
            if sample.count or sample.rejects:
                return sample
            why = f"{stream.source.kind} has none"
        except (MillwheelError, ValueError, OSError) as error:
            why = str(error)
    makers = _makers(stream, spec)
    values = [_made_up(stream, makers, number) for number in range(most)]
    return Sample(stream.name, f"made up, because {why}", {"made up": values})


def _source(stream: StreamSpec, folder: str) -> Source:
    assert stream.source is not None
    if stream.source.kind == "generator":
        clock = itertools.count(0, _JUMP_US)
        return build_generator(stream.source.options, folder, None, lambda: next(clock))
    return build_source(stream.source, folder, None, stream.declared)


def _read(stream: StreamSpec, source: Source, most: int) -> Sample:
    records: dict[str, list[Any]] = {}
    rejects: list[str] = []
    remaining = most
    for partition in source.partitions():
        reader, position, idle = source.open(partition), 0, 0
        reader.resume([(0, b"")])
        try:
            while remaining > 0 and idle < _IDLE:
                chunk = reader.read(position, remaining)
                position, idle = chunk.next_position, idle + 1 if not chunk.values else 0
                records.setdefault(partition.name, []).extend(chunk.values[:remaining])
                rejects += [reject.reason for reject in chunk.rejects]
                remaining -= len(chunk.values)
                if chunk.finished:
                    break
        finally:
            reader.close()
    kind = stream.source.kind if stream.source is not None else ""
    return Sample(stream.name, f"the first of {kind}", records, rejects)


# --- made up --------------------------------------------------------------------------------------


def _made_up(
    stream: StreamSpec, makers: Mapping[str, Callable[[int], Any]], number: int
) -> dict[str, Any]:
    """A synthetic record with every field."""
    value = {name: make(number) for name, make in makers.items()}
    if stream.timestamp and ":" not in stream.timestamp:
        value[stream.timestamp] = (_FIRST_US + number * SECOND) // stream.timestamp_unit_us
    if stream.id:
        value[stream.id] = f"{stream.id}-{number}"
    return value


def _makers(stream: StreamSpec, spec: PipelineSpec) -> dict[str, Callable[[int], Any]]:
    kinds = {**_named(stream, spec), **_of_class(stream, spec.folder), **stream.fields}
    makers = {
        name: _MAKERS[kind](name) if kind in _MAKERS else (lambda number: None)
        for name, kind in kinds.items()
    }
    return makers | {name: _cycle(values) for name, values in _compared(spec).items()}


def _cycle(values: Sequence[Any]) -> Callable[[int], Any]:
    return lambda number: values[number % len(values)]


def _named(stream: StreamSpec, spec: PipelineSpec) -> dict[str, str]:
    """The fields that expressions, aggregates and keys name."""
    fields: dict[str, str] = {}
    for computation in spec.computations:
        if any(each.stream == stream.name for each in computation.inputs):
            names = [each for text in _expressions(computation) for each in _names(text)]
            fields |= dict.fromkeys(names, "float")
    for computation in spec.computations:
        for node_input in computation.inputs:
            if node_input.stream == stream.name and node_input.key.plain:
                fields |= dict.fromkeys(node_input.key.names, "str")
    return fields


def _expressions(computation: ComputationSpec) -> Iterator[str]:
    """All texts of a computation that are in the expression language."""
    for each in computation.aggregates:
        yield from (each.argument, each.condition, *orders_of(each))
    yield computation.condition
    for node_input in computation.inputs:
        yield from node_input.key.texts
    match computation.work:
        case StepsSpec(steps=steps):
            for step in steps:
                yield from (step.expression, *step.fields.values())
        case BranchesSpec(branches=branches):
            yield from (branch.condition for branch in branches)


def _tree(expression: str) -> ast.AST:
    try:
        return ast.parse(expression, mode="eval")
    except SyntaxError:
        return ast.Module([], [])


def _names(expression: str) -> list[str]:
    tree = _tree(expression)
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return [
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in called
    ]


def _compared(spec: PipelineSpec) -> dict[str, list[Any]]:
    """The values that fields are compared with anywhere. Synthetic records contain one of them, so
    that each comparison is met."""
    by_field: dict[str, list[Any]] = {}
    for text in [text for computation in spec.computations for text in _expressions(computation)]:
        for node in ast.walk(_tree(text)):
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name):
                values = [each.value for each in node.comparators if isinstance(each, ast.Constant)]
                constants = by_field.setdefault(node.left.id, [])
                constants += [
                    value for value in values if isinstance(value, str) and value not in constants
                ]
    return {name: values for name, values in by_field.items() if values}


def _of_class(stream: StreamSpec, folder: str) -> dict[str, str]:
    if not stream.schema:
        return {}
    info = msgspec.inspect.type_info(load_object(stream.schema, folder))
    if not isinstance(info, msgspec.inspect.StructType):
        return {}
    fields = [each for each in info.fields if each.required]
    return {
        each.encode_name: type(each.type).__name__.removesuffix("Type").lower() for each in fields
    }


_MAKERS: Mapping[str, Callable[[str], Callable[[int], Any]]] = {
    "int": lambda name: lambda number: number % 100,
    "float": lambda name: lambda number: number % 100 / 4,
    "bool": lambda name: lambda number: number % 2 == 0,
    "str": lambda name: lambda number: f"{name}-{number % _KEYS}",
}
