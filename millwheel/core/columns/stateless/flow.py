"""The types of the fields of a stream: declared for that of a source; those of expressions for one
that steps make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from millwheel.core.columns.stateless.plans import Compile, StatelessPlans, why_no_plan
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.spec import DEAD_LETTERS, ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import BranchesSpec, StepsSpec


def types_of(stream: str, pipeline: PipelineSpec, compile_expression: Compile) -> Mapping[str, str]:
    """The types of all fields that records of the stream have, where all of them are known; else
    those that are declared.

    A value may still be null, or a number that no column holds: a whole one beyond 64 bits, a float
    that is infinite or none. It has no other type: expressions do not change the type of a result
    with the values of their fields."""
    return _flow_of(_Same(pipeline), compile_expression, True).types(stream)


def expected_types_of(
    stream: str, pipeline: PipelineSpec, compile_expression: Compile
) -> Mapping[str, str]:
    """The same where the fields that a source declares are taken for all that its records have:
    whoever asks looks whether a batch has these."""
    return _flow_of(_Same(pipeline), compile_expression, False).types(stream)


def follows_types(stream: str, pipeline: PipelineSpec) -> bool:
    """Whether the types of a stream can only follow from those of others."""
    spec = pipeline.stream(stream)
    return spec.source is None and not spec.fields


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A pipeline that is equal to itself alone: it has no hash of its own."""

    pipeline: PipelineSpec

    def __hash__(self) -> int:
        return id(self.pipeline)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.pipeline is self.pipeline


@lru_cache(maxsize=8)  # each computation of a pipeline asks for its inputs
def _flow_of(same: _Same, compile_expression: Compile, exact: bool) -> _Flow:
    return _Flow(same.pipeline, compile_expression, exact)


class _Flow:
    def __init__(self, pipeline: PipelineSpec, compile_expression: Compile, exact: bool) -> None:
        self._pipeline = pipeline
        self._compile = compile_expression
        self._exact = exact
        self._known: dict[str, Mapping[str, str]] = {}

    def types(self, name: str) -> Mapping[str, str]:
        """See :func:`types_of`. In a circle nothing is known."""
        stream = self._pipeline.stream(name)
        if not follows_types(name, self._pipeline):
            return {} if stream.schema else stream.fields
        if name not in self._known:
            self._known[name] = {}
            self._known[name] = self._made(name)
        return self._known[name]

    def _made(self, name: str) -> Mapping[str, str]:
        makers = [
            each
            for each in self._pipeline.computations
            if name in each.outputs or name == each.late_side
        ]
        found = [self._of_maker(each, name) for each in makers]
        alike = bool(found) and all(each == found[0] for each in found)
        return found[0] if alike and name != DEAD_LETTERS else {}

    def _of_maker(self, spec: ComputationSpec, stream: str) -> Mapping[str, str]:
        if not isinstance(spec.work, StepsSpec | BranchesSpec) or stream not in spec.outputs:
            return {}
        back = takes_retractions(spec, self._pipeline)
        if why_no_plan(spec, self._compile, back):
            return {}
        plans = StatelessPlans(spec, self._compile)
        found: list[Mapping[str, str]] = []
        for each in spec.inputs:
            # A source may read fields beside those that it declares, which are passed on.
            passed_on = not plans.projects and not follows_types(each.stream, self._pipeline)
            if passed_on and self._exact:
                return {}
            types = self.types(each.stream)
            plan = plans.plan(types) if types else None
            found.append({} if plan is None else plan.fields)
        return found[0] if all(each == found[0] for each in found) else {}
