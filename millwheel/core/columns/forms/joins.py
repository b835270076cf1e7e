"""Which joins take whole bundles, and which take each record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.state.near_pairs import FAR_US, Bounds, NearPairing
from millwheel.core.columns.stateless.flow import expected_types_of
from millwheel.core.expressions.columns import fields_computed_with, value_over_columns
from millwheel.core.expressions.declaration import NullLogic
from millwheel.core.expressions.inner_fields import inner_name
from millwheel.core.expressions.terms import NoColumns, Term
from millwheel.core.machines.specs import windowing_from_spec
from millwheel.core.order.labels import NO_USE, Labels
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    PipelineSpec,
)
from millwheel.core.pipeline.work import (
    IntervalJoinSpec,
    JoinKind,
    JoinSpec,
    RegularJoinSpec,
)
from millwheel.core.windows.panes import RETRACTION_FIELD, OutputTime
from millwheel.core.windows.windows import (
    OfInput,
    Tumbling,
)

_JOINED_WHOLE = ("tumbling", "of")
"""Kinds of windows of which a record has one."""
_KINDS_IN_COLUMNS = (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.OUTER)
"""Kinds of joins that take whole bundles."""


def window_of_join(spec: ComputationSpec, pipeline: PipelineSpec) -> Tumbling | OfInput | None:
    """The windows of a join that can do without an entry for each key and window; None for other
    joins. Weak productions are named by single records."""
    back = takes_retractions(spec, pipeline)
    join = spec.work
    if not isinstance(join, JoinSpec) or join.window.kind not in _JOINED_WHOLE or back:
        return None
    if len(spec.inputs) > 2:
        return None
    windowing = windowing_from_spec(spec)
    window = windowing.window
    plain = windowing.output_time is OutputTime.END_OF_WINDOW and not join.condition
    plain = plain and not join.changes and not spec.identified and join.kind in _KINDS_IN_COLUMNS
    if not plain or (isinstance(window, Tumbling) and window.empty):
        return None
    return window if isinstance(window, Tumbling | OfInput) else None


def near_pairing(
    spec: ComputationSpec,
    pipeline: PipelineSpec,
    compile_expression: Callable[[str], Any],
    labels: Labels,
) -> NearPairing | str:
    """How a join without a window takes whole bundles, or why it does not, as a phrase."""
    if not isinstance(spec.work, IntervalJoinSpec | RegularJoinSpec):
        return "it is none"
    if labels.of(spec.name) != NO_USE:
        return "timers behind it depend on the position of each record"
    return _pairing_or_why(spec, pipeline, compile_expression)


def near_pairings(
    pipeline: PipelineSpec, compile_expression: Callable[[str], Any], labels: Labels
) -> dict[str, NearPairing]:
    """How joins without a window take whole bundles, by name, where they do."""
    pairings = {
        spec.name: near_pairing(spec, pipeline, compile_expression, labels)
        for spec in pipeline.computations
    }
    return {name: each for name, each in pairings.items() if isinstance(each, NearPairing)}


def _pairing_or_why(
    spec: ComputationSpec, pipeline: PipelineSpec, compile_expression: Callable[[str], Any]
) -> NearPairing | str:
    """How a join without a window pairs columns, or why it takes records one by one, as a
    phrase."""
    work = spec.work
    assert isinstance(work, IntervalJoinSpec | RegularJoinSpec)
    if isinstance(work, IntervalJoinSpec) and work.kind is not JoinKind.INNER:
        return "records without a partner are looked at one by one"
    if isinstance(work, RegularJoinSpec):
        if len(spec.inputs) > 2:
            return "the records of several streams are combined one by one"
        if any(ttl is not None for ttl in work.ttls_us):
            return "each record has a ttl of its own"
    if spec.identified or spec.ordered or takes_retractions(spec, pipeline):
        return "it looks at each record"
    streams = [pipeline.stream(each.stream) for each in spec.inputs]
    keys = [each.key for each in spec.inputs]
    if any(not key.plain or key.instances > 1 or key.nulls for key in keys):
        return "its key is not a field"
    types = [expected_types_of(stream.name, pipeline, compile_expression) for stream in streams]
    for stream, fields in zip(streams, types, strict=True):
        if stream.schema or (stream.source is not None and not fields):
            return f"the fields of {stream.name} are not declared"
        if patterns := sorted(filter(is_pattern, fields)):
            return f"the library of columns takes the name of the field {patterns[0]} for a pattern"
    kinds = [[of.get(name, "") for name in key.names] for key, of in zip(keys, types, strict=True)]
    typed = [each for each, fields in zip(kinds, types, strict=True) if fields]
    if typed and (typed[0] != typed[-1] or not {*typed[0]} <= {"int", "str"}):
        return "its keys are not declared as int or str"
    names = (*keys[0].shown, streams[0].name, streams[1].name)
    if len(set(names)) < len(names):
        return "two fields of its results have one name"
    if RETRACTION_FIELD in {*types[0], *types[1]}:
        return f"records with a field {RETRACTION_FIELD} may be retractions"
    bounds = [Bounds(None, None)] * 2
    if isinstance(work, IntervalJoinSpec):
        apart = (work.before_us, work.after_us), (work.after_us, work.before_us)
        try:
            bounds = [
                _bounds(work, stream.name, fields, distances, compile_expression)
                for stream, fields, distances in zip(streams, types, apart, strict=True)
            ]
        except NoColumns:
            return "a bound of within has no column form"
    return NearPairing(
        (streams[0].name, streams[1].name),
        (types[0], types[1]),
        keys[0].shown,
        (bounds[0], bounds[1]),
        isinstance(work, RegularJoinSpec),
        work.kind,
    )


def _bounds(
    work: IntervalJoinSpec,
    stream: str,
    fields: Mapping[str, str],
    distances: tuple[int | None, int | None],
    compile_expression: Callable[[str], Any],
) -> Bounds:
    """Raises NoColumns."""
    if any(distance is not None and abs(distance) >= FAR_US for distance in distances):
        raise NoColumns
    kinds = {inner_name(stream, name): kind for name, kind in fields.items()}
    reads: dict[str, str] = {}
    terms: list[list[Term]] = [[], []]
    for chosen, bounds in zip(terms, (work.froms, work.untils), strict=True):
        for bound in bounds:
            if bound.stream != stream:
                continue
            compiled = compile_expression(bound.expression)
            term = value_over_columns(compiled.tree, kinds, compiled.dialect)
            if term.kind != "int":
                raise NoColumns
            chosen.append(term)
            computed = fields_computed_with(compiled.tree)
            if computed and compiled.dialect.nulls is NullLogic.SQL:
                raise NoColumns
            reads |= {name: kinds[name] for name in computed}
    return Bounds(*distances, tuple(terms[0]), tuple(terms[1]), tuple(reads.items()))
