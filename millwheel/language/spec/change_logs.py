"""Change logs: an ``aggregate`` without a ``window``. Each key is one group without an end.

totals: {input: {bids: {key: auction}}, aggregate: {bids: count}, output: totals}

When a group changes, a change log emits the new version alone, which replaces the one before, or
first a record that takes that one back. It takes back where something behind it would count both
(an aggregation or a table, also behind steps), where something may leave the new version out (a
filter, a branch), and where a group can go, since nothing would replace its last version. Files may
state it themselves (``accumulation``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import (
    FOREVER,
    AggregationSpec,
    BranchesSpec,
    CallbackSpec,
    DeduplicateSpec,
    DictionarySpec,
    FiringSpec,
    LookupSpec,
    OverSpec,
    StepKind,
    StepsSpec,
    TopSpec,
    WindowSpec,
)
from millwheel.core.windows.panes import Accumulation
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader

_OTHERS = ("window", "callback", "slices", "uv", "dictionary", "over")
"""With one of these an ``aggregate`` is part of other work, or is refused there."""
_EACH_BUNDLE = {"repeat": {"after_count": 1}}
"""Fixed: the trigger that is ready after each bundle."""
_NOT_HERE = {
    "allowed_lateness": "takes late records at any time",
    "late": "takes late records at any time",
    "output_time": "gives each version the latest time of its group's records",
}


def is_change_log(fields: Mapping[str, YamlNode]) -> bool:
    """Whether a computation with these fields is a change log."""
    return "aggregate" in fields and not fields.keys() & set(_OTHERS)


def check_change_log(reader: NodeReader, fields: Mapping[str, YamlNode]) -> None:
    """Note the fields that belong to windows."""
    for name, why in _NOT_HERE.items():
        if name in fields:
            reader.bad(
                fields[name],
                f"a change log (an aggregate without a window) {why}; leave out {name}, or write"
                " a window",
            )


def change_log(
    trigger: Mapping[str, Any] | None, ttl_us: int | None, fields: Mapping[str, YamlNode]
) -> AggregationSpec:
    """The work of a change log, without its aggregates. Whether it takes back versions that it
    replaces is decided later, unless it is written."""
    accumulation = fields["accumulation"].text if "accumulation" in fields else UNDECIDED
    return AggregationSpec(
        window=WindowSpec(FOREVER, {} if ttl_us is None else {"ttl_us": ttl_us}),
        firing=FiringSpec(
            trigger=_EACH_BUNDLE if trigger is None else trigger, accumulation=accumulation
        ),
    )


UNDECIDED = ""
"""The accumulation of a change log that does not set it itself."""
_TAKES_VERSIONS = (
    CallbackSpec,
    DeduplicateSpec,
    DictionarySpec,
    LookupSpec,
    OverSpec,
)
"""Work for which each version is a record like others: it cannot undo one."""


def decided(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline with the accumulation of each change log."""
    logs = [each for each in spec.computations if _is_open(each)]
    for log in logs:
        takes_back = any(map(_needs_both, _behind(log.outputs, spec)))
        takes_back = takes_back or bool(log.work_as(AggregationSpec).having)
        spec = _with(spec, log, takes_back)
    # Whether groups can go depends on the logs above.
    for _ in logs:
        for log in logs:
            now = next(each for each in spec.computations if each.name == log.name)
            if takes_retractions(now, spec):
                spec = _with(spec, log, True)
    return spec


def _is_open(computation: ComputationSpec) -> bool:
    return computation.is_change_log and computation.firing.accumulation == UNDECIDED


def undoes(computation: ComputationSpec) -> bool:
    """Whether it can undo the effect of a record that is taken back."""
    by_time = isinstance(computation.work, TopSpec) and not computation.work.by
    return not by_time and not isinstance(computation.work, _TAKES_VERSIONS)


def _with(spec: PipelineSpec, log: ComputationSpec, takes_back: bool) -> PipelineSpec:
    mode = Accumulation.RETRACTING if takes_back else Accumulation.ACCUMULATING
    work = log.work_as(AggregationSpec)
    made = replace(work, firing=replace(work.firing, accumulation=mode.value))
    return replace(
        spec,
        computations=tuple(
            replace(each, work=made) if each.name == log.name else each
            for each in spec.computations
        ),
    )


def _needs_both(computation: ComputationSpec) -> bool:
    match computation.work:
        case StepsSpec(steps=steps):
            return any(step.kind is not StepKind.MAP for step in steps)
        case BranchesSpec():
            return True
    return undoes(computation)


def consumers(outputs: Sequence[str], spec: PipelineSpec) -> list[ComputationSpec]:
    """The computations that get the versions in some streams, behind any steps and branches."""
    behind = _behind(outputs, spec)
    return [each for each in behind if not isinstance(each.work, StepsSpec | BranchesSpec)]


def _behind(outputs: Sequence[str], spec: PipelineSpec) -> list[ComputationSpec]:
    """Steps and branches included."""
    consumers: list[ComputationSpec] = []
    streams, seen = [*outputs], set(outputs)
    while streams:
        stream = streams.pop()
        for each in spec.computations:
            if each in consumers or all(each_input.stream != stream for each_input in each.inputs):
                continue
            consumers.append(each)
            if isinstance(each.work, StepsSpec | BranchesSpec):
                streams += [name for name in each.outputs if name not in seen]
                seen.update(each.outputs)
    return consumers
