"""Dictionaries: the partition of a value, and the id of a number in a partition; and the plan of
unique visitors, which are counted by such numbers.

The number of partitions is fixed for ever, and the partition of a value is a function of the value
alone. Each partition counts its own values from 0. So no two partitions ever give the same id,
however often their shards are split, moved or merged. The ids are dense over all partitions
together, which suits bitmaps best.

    visitors: {input: {hits: {key: country}}, uv: {of: device_id, every: 1m}, output: visitors}

becomes

    ids.visitors: a dictionary of device_id, emits the needed fields with a number for the device
    visitors: ids.visitors by country, counts different numbers in windows that grow over the day

Equal devices have equal numbers, so the counts are those of the devices themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.skew import instance_of, instances_of
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec
from millwheel.core.pipeline.work import AggregationSpec, DictionarySpec
from millwheel.errors import RecordError

MOST_PARTITIONS = 1 << 16
"""The most partitions. Each is a key with a counter of its own; more of them spread no better."""
TTL_PARTS = 8  # of a time to live: a value is written so often while it is seen all the time


def partition_of(value: Any, partitions: int) -> int:
    """The partition of a value. Raises RecordError unless it is text, a whole number or bytes."""
    kind = type(value)
    if kind is str:
        return int(xxhash.xxh3_64_intdigest(value.encode("utf-8", "surrogatepass"))) % partitions
    if kind is int and -(2**63) <= value < 2**63:
        return instance_of(value, partitions)
    if kind is bytes:
        return int(xxhash.xxh3_64_intdigest(b"\0" + value)) % partitions
    text = repr(value)[:100]
    raise RecordError(
        f"a dictionary needs text, a whole number of 64 bits or bytes, not {kind.__name__} {text}"
    )


def partitions_of_text(values: Sequence[str], partitions: int) -> list[int]:
    """:func:`partition_of` for each."""
    digest = xxhash.xxh3_64_intdigest
    return [digest(value.encode()) % partitions for value in values]


def partitions_of_numbers(values: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.int64]:
    """:func:`partition_of` for each."""
    return instances_of(values, partitions)


def ids_of(
    partitions: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.int64]:
    """The ids of the values with these numbers in their partitions; there are ``count``
    partitions."""
    return partitions + count * numbers


def partitioned(extract: Callable[[Any], Any], partitions: int) -> Callable[[Any], int]:
    """The key extractor of a dictionary: the partition of the value that ``extract`` reads."""
    return lambda value: partition_of(extract(value), partitions)


NUMBER = "_visitor"
"""The field of the number of a visitor in the records of the dictionary."""
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
