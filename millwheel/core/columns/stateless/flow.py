"""The types of the fields of a stream: declared for that of a source; those of expressions for one
that steps make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.from_spec import typed_plan
from millwheel.core.columns.key_columns import kinds_of_key
from millwheel.core.columns.stateless.plans import (
    Compile,
    StatelessPlans,
    result_plan,
    why_no_plan,
)
from millwheel.core.expressions.inner_fields import inner_name, is_inner, path_of
from millwheel.core.expressions.terms import RECORD, NoColumns
from millwheel.core.lazy_polars import kind_of, pl
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    AggregationStage,
    ComputationSpec,
    InputSpec,
    PipelineSpec,
)
from millwheel.core.pipeline.work import (
    BranchesSpec,
    IntervalJoinSpec,
    JoinKind,
    RegularJoinSpec,
    StepsSpec,
)
from millwheel.core.windows.windows import Forever


def types_of(stream: str, pipeline: PipelineSpec, compile_expression: Compile) -> Mapping[str, str]:
    """The types of all fields that records of the stream have, where all of them are known; else
    those that are declared.

    A value may still be null, or a number that no column holds: a whole one beyond 64 bits, a float
    that is infinite or none. It has no other type: expressions do not change the type of a result
    with the values of their fields."""
    return _flow_of(_Same(pipeline), compile_expression, True, False).types(stream)


def types_through(
    stream: str, pipeline: PipelineSpec, compile_expression: Compile
) -> Mapping[str, str]:
    """The same, with the types of joins and of change logs as they follow from their inputs. Of a
    record within a record (a side of a join) the types of its fields are there, too."""
    return _flow_of(_Same(pipeline), compile_expression, True, True).types(stream)


def expected_types_of(
    stream: str, pipeline: PipelineSpec, compile_expression: Compile
) -> Mapping[str, str]:
    """The same, as if the records of a source had no other fields than it declares: the caller
    checks whether a batch has these."""
    return _flow_of(_Same(pipeline), compile_expression, False, False).types(stream)


def follows_types(stream: str, pipeline: PipelineSpec) -> bool:
    """Whether the types of a stream can only follow from those of others."""
    spec = pipeline.stream(stream)
    return spec.source is None and not spec.fields


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A pipeline as a key of a cache, equal to itself alone: it has no hash of its own."""

    pipeline: PipelineSpec

    def __hash__(self) -> int:
        return id(self.pipeline)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.pipeline is self.pipeline


@lru_cache(maxsize=8)  # each computation of a pipeline asks for its inputs
def _flow_of(same: _Same, compile_expression: Compile, exact: bool, through: bool) -> _Flow:
    return _Flow(same.pipeline, compile_expression, exact, through)


class _Flow:
    def __init__(
        self, pipeline: PipelineSpec, compile_expression: Compile, exact: bool, through: bool
    ) -> None:
        self._pipeline = pipeline
        self._compile = compile_expression
        self._exact = exact
        self._through = through
        self._types: dict[str, Mapping[str, str]] = {}

    def types(self, name: str) -> Mapping[str, str]:
        """See :func:`types_of`. In a cycle of streams there are none."""
        stream = self._pipeline.stream(name)
        if not follows_types(name, self._pipeline):
            return {} if stream.schema else stream.fields
        if name not in self._types:
            self._types[name] = {}
            self._types[name] = self._made(name)
        return self._types[name]

    def _made(self, name: str) -> Mapping[str, str]:
        makers = [
            each
            for each in self._pipeline.computations
            if name in each.outputs or name == each.late_side
        ]
        types = [self._of_maker(each, name) for each in makers]
        alike = bool(types) and all(each == types[0] for each in types)
        return types[0] if alike and name != DEAD_LETTERS else {}

    def _of_maker(self, spec: ComputationSpec, stream: str) -> Mapping[str, str]:
        if self._through and stream in spec.outputs:
            if isinstance(spec.work, IntervalJoinSpec | RegularJoinSpec):
                return self._of_join(spec, spec.work.kind)
            if spec.is_change_log:
                return self._of_change_log(spec)
        if not isinstance(spec.work, StepsSpec | BranchesSpec) or stream not in spec.outputs:
            return {}
        back = takes_retractions(spec, self._pipeline)
        if why_no_plan(spec, self._compile, back):
            return {}
        plans = StatelessPlans(spec, self._compile)
        of_inputs: list[Mapping[str, str]] = []
        for each in spec.inputs:
            # A source may read fields beside those that it declares, which are passed on.
            passed_on = not plans.projects and not follows_types(each.stream, self._pipeline)
            if passed_on and self._exact:
                return {}
            types = self.types(each.stream)
            plan = plans.plan(types) if types else None
            of_inputs.append(
                {} if plan is None else _with_inner(plan.fields, types, plans.projects)
            )
        return of_inputs[0] if all(each == of_inputs[0] for each in of_inputs) else {}

    def _of_join(self, spec: ComputationSpec, kind: JoinKind) -> Mapping[str, str]:
        """The types of the pairs of a join, which have the fields of their key and the record of
        each stream."""
        sides = {}
        for each in spec.inputs:
            # A source may read fields beside those that it declares, which are passed on.
            types = self.types(each.stream) if follows_types(each.stream, self._pipeline) else {}
            if not types:
                return {}
            sides[each.stream] = types
        if kind is not JoinKind.INNER:
            return {}
        first = spec.inputs[0]
        if _is_code(first):
            return {}
        try:
            kinds = kinds_of_key(first.key, sides[first.stream], self._compile)
        except NoColumns:
            return {}
        fields = {name: kind for name, kind in kinds.items() if name in first.key.shown}
        if not {*sides}.isdisjoint(fields):
            return {}
        for stream, types in sides.items():
            fields[stream] = RECORD
            fields |= {inner_name(stream, *path_of(name)): of for name, of in types.items()}
        return fields

    def _of_change_log(self, spec: ComputationSpec) -> Mapping[str, str]:
        """The types of the versions of a change log."""
        own_input = spec.inputs[0]
        if len(spec.inputs) != 1 or spec.stage is not AggregationStage.WHOLE or _is_code(own_input):
            return {}
        types, name = self.types(own_input.stream), own_input.stream
        stream = self._pipeline.stream(name)
        plan = typed_plan(spec, Forever(), types, self._compile, stream.timestamp) if types else ""
        # An empty sum is a whole 0 where the field is not declared to be a float.
        if isinstance(plan, str) or (plan.floats and follows_types(name, self._pipeline)):
            return {}
        try:
            results = plan.results(pl.DataFrame(schema=plan.schema))
        except Inexact:
            return {}
        kinds = {field: kind_of(kind) for field, kind in results.schema.items()}
        made = result_plan(spec, kinds, self._compile)
        return {} if made is None or not all(kinds.values()) else made.fields


def _is_code(node_input: InputSpec) -> bool:
    """Whether its key is computed by code, or given by the producer: columns have none."""
    return node_input.key.kind in (KeyKind.FUNCTION, KeyKind.RECORD)


def _with_inner(
    fields: Mapping[str, str], types: Mapping[str, str], projects: bool
) -> Mapping[str, str]:
    """The types of the fields that steps make, and of the fields within fields that they pass on;
    none where those of a record within a record are unknown."""
    if projects:
        return {} if RECORD in fields.values() else fields
    return {**fields, **{name: kind for name, kind in types.items() if is_inner(name)}}
