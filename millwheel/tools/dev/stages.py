"""One trial of a pipeline: the sample passes through all stages in memory, and the output of each
stage is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millwheel.core.model.times import duration_text
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.spec import DEAD_LETTERS, ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import LookupSpec
from millwheel.tools.dev.lateness import late_of, lateness_of
from millwheel.tools.dev.samples import Sample
from millwheel.tools.testing import PipelineHarness


@dataclass(frozen=True, slots=True)
class Stage:
    """The records of one stream: their number, and the values of the first of them. ``made_by`` is
    a computation, or the origin of a source's records."""

    stream: str
    made_by: str
    count: int
    rows: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """All stages in the order of the graph, and sentences about failures."""

    stages: Sequence[Stage]
    failures: Sequence[str]


def tried(spec: PipelineSpec, samples: Sequence[Sample], rows: int) -> Trial:
    """Push the samples, end the input, and collect the records of every stream. Lookups find
    nothing."""
    lookups = {
        each.name: _nothing for each in spec.computations if isinstance(each.work, LookupSpec)
    }
    as_read = replace(spec, streams=tuple(replace(each, times={}) for each in spec.streams))
    with PipelineHarness(as_read, shards=1, workers=1, lookups=lookups) as harness:
        for sample in samples:
            for partition, values in sample.records.items():
                harness.push(sample.stream, values, key=partition)
        harness.finish()
        stages = {
            sample.stream: Stage(sample.stream, sample.origin, sample.count, _first(sample, rows))
            for sample in samples
        }
        for computation in _in_order(spec):
            for stream in (
                *computation.outputs,
                *([computation.late_side] if computation.late_side else []),
            ):
                values = harness.read(stream)
                stages[stream] = Stage(stream, computation.name, len(values), values[:rows])
        letters = harness.read(DEAD_LETTERS)
    lookup_notes = [
        f"{name} asks another system; here it answers that nothing is known" for name in lookups
    ]
    return Trial(
        [*stages.values()],
        [*_rejected(samples), *_failed(letters), *_late(spec, samples), *lookup_notes],
    )


def _nothing(_: Any) -> None:
    """A lookup that finds nothing and calls no service."""


def _first(sample: Sample, rows: int) -> list[Any]:
    return [value for values in sample.records.values() for value in values][:rows]


def _in_order(spec: PipelineSpec) -> list[ComputationSpec]:
    depths = build_graph(spec).depths()
    return sorted(spec.computations, key=lambda each: depths[each.name])


def _rejected(samples: Sequence[Sample]) -> list[str]:
    """The parts of the input that are no records."""
    return [
        f"{sample.stream}: {count:,} x {reason}"
        for sample in samples
        for reason, count in Counter(sample.rejects).most_common()
    ]


def _failed(letters: Sequence[Mapping[str, Any]]) -> list[str]:
    """Dead letters by cause and place of failure, the most frequent first, each with one of its
    values."""
    groups = Counter(
        (each["computation"], each["reason"], each.get("location", "")) for each in letters
    )
    examples = {
        (each["computation"], each["reason"], each.get("location", "")): each
        for each in reversed(letters)
    }
    return [
        f"{computation.removeprefix('source.')}: {count:,} x"
        f" {reason}{f' ({location})' if location else ''}; for example"
        f" {examples[computation, reason, location].get('value')!s:.100}"
        for (computation, reason, location), count in groups.most_common()
    ]


def _late(spec: PipelineSpec, samples: Sequence[Sample]) -> list[str]:
    """The late share of each stream in a run; here all of the sample counts."""
    return [
        f"{each.stream}: a run finds {each.late_now:.3%} of these records later than max_delay"
        f" {duration_text(each.max_delay_us)}, and {late_of(each):.3%} later than"
        f" {duration_text(each.suggested_us)}: see `millwheel lateness`"
        for each in lateness_of(spec, samples)[0]
        if each.late_now
    ]
