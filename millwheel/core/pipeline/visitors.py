"""The plan of unique visitors: a dictionary, and an aggregation that counts numbers instead of text.

    visitors: {input: {hits: {key: country}}, uv: {of: device_id, every: 1m}, output: visitors}

becomes

    ids.visitors: a dictionary of device_id, emits the fields that are needed with a number for the device
    visitors: ids.visitors by country, counts different numbers in windows that grow over the day

Equal devices have equal numbers, so the counts are those of the devices themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from millwheel.core.pipeline.spec import ComputationSpec, DictionarySpec, InputSpec, KeyKind, KeySpec, PipelineSpec

NUMBER = "_visitor"
"""The field of the number of a visitor, in what the dictionary emits."""
_PREFIX = "ids."
FieldsOf = Callable[[str], Iterable[str]]
"""The fields that an expression reads."""


def numbered(spec: PipelineSpec, fields_of: FieldsOf) -> PipelineSpec:
    """The pipeline as it runs: with a dictionary before each computation that counts numbered values."""
    if not any(each.numbered for each in spec.computations):
        return spec
    stages = (each for given in spec.computations for each in _stages(given, fields_of))
    return replace(spec, computations=tuple(stages))


def _stages(whole: ComputationSpec, fields_of: FieldsOf) -> Iterator[ComputationSpec]:
    if not whole.numbered:
        yield whole
        return
    (given,), (counted,) = whole.inputs, whole.aggregates
    stream = _PREFIX + whole.name
    yield ComputationSpec(
        name=stream,
        inputs=(InputSpec(given.stream, KeySpec(KeyKind.FIELD, (counted.argument,), partitions=whole.numbered)),),
        outputs=(stream,),
        dictionary=DictionarySpec(
            counted.argument, NUMBER, whole.numbered, _kept(whole, fields_of), whole.numbered_ttl_us
        ),
        max_attempts=whole.max_attempts,
        on_error=whole.on_error,
        shards=whole.shards,
        standby=whole.standby,
        where=whole.where,
    )
    aggregates = (replace(counted, argument=NUMBER),)
    yield replace(
        whole, inputs=(InputSpec(stream, given.key),), aggregates=aggregates, numbered=0, numbered_ttl_us=None
    )


def _kept(whole: ComputationSpec, fields_of: FieldsOf) -> tuple[str, ...]:
    """The fields that the count needs, () for all: a key function may read any."""
    key = whole.inputs[0].key
    if key.kind not in (KeyKind.FIELD, KeyKind.FIELDS):
        return ()
    conditions = [text for text in (whole.condition, whole.aggregates[0].condition) if text]
    return tuple(sorted({*key.names, *(name for text in conditions for name in fields_of(text))}))
