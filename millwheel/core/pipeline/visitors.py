"""The plan of unique visitors: a dictionary, and an aggregation that counts numbers instead of
text.

    visitors: {input: {hits: {key: country}}, uv: {of: device_id, every: 1m}, output: visitors}

becomes

    ids.visitors: a dictionary of device_id, emits the needed fields with a number for the device
    visitors: ids.visitors by country, counts different numbers in windows that grow over the day

Equal devices have equal numbers, so the counts are those of the devices themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec
from millwheel.core.pipeline.work import AggregationSpec, DictionarySpec

NUMBER = "_visitor"
"""The field of the number of a visitor, in what the dictionary emits."""
_PREFIX = "ids."
FieldsOf = Callable[[str], Iterable[str]]
"""The fields that an expression reads."""


def numbered(spec: PipelineSpec, fields_of: FieldsOf) -> PipelineSpec:
    """The pipeline as it runs: with a dictionary before each computation that counts numbered
    values."""
    stages = tuple(each for whole in spec.computations for each in _stages(whole, fields_of))
    return spec if len(stages) == len(spec.computations) else replace(spec, computations=stages)


def _stages(whole: ComputationSpec, fields_of: FieldsOf) -> Iterator[ComputationSpec]:
    work = whole.work
    if not isinstance(work, AggregationSpec) or work.numbered is None:
        yield whole
        return
    (node_input,), (counted,), numbers = whole.inputs, work.aggregates, work.numbered
    stream = _PREFIX + whole.name
    yield ComputationSpec(
        name=stream,
        inputs=(
            InputSpec(
                node_input.stream,
                KeySpec(KeyKind.FIELD, (counted.argument,), partitions=numbers.partitions),
            ),
        ),
        outputs=(stream,),
        work=DictionarySpec(
            counted.argument, NUMBER, numbers.partitions, _kept(whole, fields_of), numbers.ttl_us
        ),
        max_attempts=whole.max_attempts,
        on_error=whole.on_error,
        shards=whole.shards,
        standby=whole.standby,
        where=whole.where,
    )
    counts = replace(work, aggregates=(replace(counted, argument=NUMBER),), numbered=None)
    yield replace(whole, inputs=(InputSpec(stream, node_input.key),), work=counts)


def _kept(whole: ComputationSpec, fields_of: FieldsOf) -> tuple[str, ...]:
    """The fields that the count needs, () for all: a key function may read any."""
    key = whole.inputs[0].key
    if key.kind in (KeyKind.FUNCTION, KeyKind.RECORD):
        return ()
    texts = [text for text in (whole.condition, whole.aggregates[0].condition) if text]
    texts += key.texts
    plain = key.names if key.plain else ()
    return tuple(sorted({*plain, *(name for text in texts for name in fields_of(text))}))
