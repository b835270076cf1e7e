"""Changes to a pipeline between two lives of a run, which may change nothing of its results.

Each is drawn for a seed and kept where ``compare`` calls it compatible: then the new code goes on
on the same root, with whatever was in flight when the old one died.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from millwheel.connect.own_functions import language_of
from millwheel.control.savepoints import compatibility
from millwheel.control.savepoints.blueprint import blueprint_of
from millwheel.control.savepoints.rules import Compatibility
from millwheel.core.columns.stateless.flow import types_of
from millwheel.core.pipeline.spec import ComputationSpec, Delivery, PipelineSpec, Productions
from millwheel.core.pipeline.work import StepsSpec

Edit = Callable[[PipelineSpec], PipelineSpec]
_SHARE = 0.7  # of all changes that are tried


def edited(spec: PipelineSpec, seed: int) -> PipelineSpec:
    """The pipeline with some of the changes that its root allows."""
    rng, of_steps = Random(f"edits {seed}"), Random(f"edits of steps {seed}")
    chosen = [edit for edit in _edits(spec) if rng.random() < _SHARE]
    chosen += [edit for edit in _edits_of_steps(spec) if of_steps.random() < _SHARE]
    for edit in chosen:
        changed = edit(spec)
        found = compatibility.compare(blueprint_of(spec), blueprint_of(changed))
        spec = changed if compatibility.worst(found) is Compatibility.FREE else spec
    return spec


def _edits(spec: PipelineSpec) -> Iterator[Edit]:
    named = {stream.name for stream in spec.streams if stream.id}
    named.update(
        *((*c.outputs, c.late_side) for c in spec.computations if c.productions is Productions.WEAK)
    )
    for computation in spec.computations:
        # at least once counts named copies again
        if named.isdisjoint(given.stream for given in computation.inputs):
            yield partial(_computation, computation.name, _other_delivery)
        yield partial(_computation, computation.name, _other_productions)
        yield partial(_computation, computation.name, partial(replace, shards=5))
        yield partial(_computation, computation.name, partial(replace, standby=1))
    for stream in spec.streams:
        if stream.source is not None:
            yield partial(_without_fields, stream.name)
    yield lambda spec: replace(
        spec, limits=replace(spec.limits, in_flight=spec.limits.in_flight // 2)
    )
    yield lambda spec: replace(spec, latency_us=1_000)


def _edits_of_steps(spec: PipelineSpec) -> Iterator[Edit]:
    """Dead letters tell a step in its words, so that none may have others."""
    for computation in spec.computations:
        if _open_windows_follow(computation, spec):
            yield partial(_computation, computation.name, _other_type)


def _computation(name: str, change: Any, spec: PipelineSpec) -> PipelineSpec:
    return replace(
        spec, computations=tuple(change(c) if c.name == name else c for c in spec.computations)
    )


def _other_delivery(computation: ComputationSpec) -> ComputationSpec:
    exactly = computation.delivery is Delivery.EXACTLY_ONCE
    return replace(
        computation, delivery=Delivery.AT_LEAST_ONCE if exactly else Delivery.EXACTLY_ONCE
    )


def _other_productions(computation: ComputationSpec) -> ComputationSpec:
    strong = computation.productions is Productions.STRONG
    return replace(computation, productions=Productions.WEAK if strong else Productions.STRONG)


def _other_type(computation: ComputationSpec) -> ComputationSpec:
    """``map`` makes a float of ``n``, of the same value."""
    assert isinstance(computation.work, StepsSpec)
    steps = tuple(
        replace(step, fields={**step.fields, "n": "n * 2.0"}) if "n" in step.fields else step
        for step in computation.work.steps
    )
    return replace(computation, work=replace(computation.work, steps=steps))


def _open_windows_follow(computation: ComputationSpec, spec: PipelineSpec) -> bool:
    """Whether windows behind its steps lie in columns of the types that it makes. Then no other
    type may come into them; elsewhere one may, and shows."""
    if not isinstance(computation.work, StepsSpec):
        return False
    compiled = language_of(spec).compile
    typed = {
        name for name in computation.outputs if types_of(name, spec, compiled).get("n") == "int"
    }
    return any(
        c.windowed is not None and not typed.isdisjoint(given.stream for given in c.inputs)
        for c in spec.computations
    )


def _without_fields(name: str, spec: PipelineSpec) -> PipelineSpec:
    return replace(
        spec, streams=tuple(replace(s, fields={}) if s.name == name else s for s in spec.streams)
    )
