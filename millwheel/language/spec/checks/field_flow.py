"""The fields that the records of a stream have, where that is certain: of classes, and of results
of computations that declare them. Everything else has any fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from millwheel.connect.python_objects import load_object
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
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
    StepSpec,
    StepsSpec,
    WindowCallbackSpec,
    Work,
)
from millwheel.language.spec.key_notation import key_names
from millwheel.language.spec.parts.aggregates import WINDOW_FIELDS

Fields = Mapping[str, Sequence[str]]
"""Stream to the names of all fields that its records can have."""


def exact_fields(spec: PipelineSpec, classes: Fields) -> dict[str, tuple[str, ...]]:
    """The streams whose fields are certain. ``classes`` are the fields of streams that are decoded
    into a class."""
    sources = {stream.name for stream in spec.streams if stream.source is not None}
    fields = {stream: tuple(names) for stream, names in classes.items()}
    # each round gets one step further down; circles stay unknown
    for _ in range(len(spec.computations) + 1):
        outputs: dict[str, list[tuple[str, ...] | None]] = {}
        for computation in spec.computations:
            for stream, names in _outputs(computation, fields):
                outputs.setdefault(stream, []).append(names)
        for stream, several in outputs.items():
            if stream in sources or stream in classes or None in several:
                continue
            fields[stream] = tuple(dict.fromkeys(name for names in several for name in names or ()))
    return fields


def fields_of_classes(spec: PipelineSpec) -> dict[str, list[str]]:
    """The fields of the classes that streams are decoded into, by stream."""
    classes = {
        stream.name: load_object(stream.schema, spec.folder)
        for stream in spec.streams
        if stream.schema
    }
    return {
        name: [field.name for field in msgspec.structs.fields(loaded)]
        for name, loaded in classes.items()
        if isinstance(loaded, type) and issubclass(loaded, msgspec.Struct)
    }


def _outputs(
    computation: ComputationSpec, fields: Fields
) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Each stream that a computation fills, with the fields of its records there (None:
    unknown)."""
    input_fields = _taken(computation, fields)
    if computation.late_side:
        yield computation.late_side, input_fields
    names = _made(computation, input_fields)
    yield from ((stream, names) for stream in computation.outputs)


def _taken(computation: ComputationSpec, fields: Fields) -> tuple[str, ...] | None:
    """The fields of its input. The other stream of an enrichment adds a field, and gives none of
    its own; nor does that of a join which gives no pairs."""
    match computation.work:
        case EnrichSpec(stream=other):
            pass
        case RegularJoinSpec(kind=kind) | IntervalJoinSpec(kind=kind) if not kind.in_pairs:
            other = computation.inputs[-1].stream
        case _:
            other = ""
    streams = [each.stream for each in computation.inputs if each.stream != other]
    if not streams or any(stream not in fields for stream in streams):
        return None
    return tuple(dict.fromkeys(name for stream in streams for name in fields[stream]))


def _made(
    computation: ComputationSpec, input_fields: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    match computation.work:
        case CallbackSpec() | WindowCallbackSpec() | SlicesSpec():
            return None
        case JoinSpec(kind=kind) | RegularJoinSpec(kind=kind) | IntervalJoinSpec(kind=kind) if (
            not kind.in_pairs
        ):
            return input_fields
        case JoinSpec():
            streams = [each.stream for each in computation.inputs]
            return (*key_names(computation.inputs), *WINDOW_FIELDS, *streams)
        case RegularJoinSpec() | IntervalJoinSpec():
            return (*key_names(computation.inputs), *(each.stream for each in computation.inputs))
        case AggregationSpec(aggregates=aggregates, then=then):
            results = [*(aggregate.name for aggregate in aggregates), *then] or ["result"]
            bounds = () if computation.is_change_log else WINDOW_FIELDS
            return (*key_names(computation.inputs), *bounds, *results)
        case StepsSpec(steps):
            return _stepped(steps, input_fields)
        case work:
            return (
                None
                if input_fields is None
                else tuple(dict.fromkeys((*input_fields, *_added(work))))
            )


def _stepped(
    steps: Sequence[StepSpec], input_fields: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    for step in steps:
        if not step.passes_on:
            input_fields = tuple(step.fields) if step.fields else None
        elif step.fields and input_fields is not None:
            input_fields = tuple(dict.fromkeys((*input_fields, *step.fields)))
    return input_fields


def _added(work: Work) -> tuple[str, ...]:
    """The fields that an enrichment, a lookup or a look-back adds."""
    match work:
        case EnrichSpec(name=name):
            return (name,)
        case OverSpec(aggregates=aggregates):
            return tuple(each.name for each in aggregates)
        case LookupSpec(name=name, fields=fields):
            return (name,) if name else tuple(fields)
    return ()
