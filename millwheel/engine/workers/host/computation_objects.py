"""The object that gets the records of a computation, one by one or by window: user code, or its
equivalent in this project."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millwheel.adapters.secret_values import revealed
from millwheel.api import Computation
from millwheel.connect.own_functions import language_of
from millwheel.connect.python_objects import missing_file_hint
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.steps import compile_branches, compile_steps
from millwheel.core.pipeline.work import (
    BranchesSpec,
    CallbackSpec,
    CopiesSpec,
    DeduplicateSpec,
    EnrichSpec,
    IntervalJoinSpec,
    OverSpec,
    RegularJoinSpec,
    StepsSpec,
    TableSpec,
    TopSpec,
)
from millwheel.core.rows.latest import LatestRow, deletion
from millwheel.core.rows.ranking import Ranking
from millwheel.engine.workers.operators.broadcast.copies import copied, enriched_in_copies
from millwheel.engine.workers.operators.keyed_joins.interval import interval_join
from millwheel.engine.workers.operators.keyed_joins.regular import regular_join
from millwheel.engine.workers.operators.keyed_joins.several import several_join
from millwheel.engine.workers.operators.ranked.over import Over
from millwheel.engine.workers.operators.ranked.top import FirstRows
from millwheel.engine.workers.operators.record_computations import (
    Branched,
    Stepped,
    Tabled,
    deduplicated,
)
from millwheel.engine.workers.operators.record_joins import declared_fields, joined
from millwheel.errors import SetupError


def computation_of(
    spec: ComputationSpec, pipeline: PipelineSpec, load: Callable[[str], Any]
) -> Computation:
    """The object whose methods get the records. ``load`` returns the object named ``module:name``.
    Raises SetupError for a user class that cannot be built."""
    if spec.called is not None:
        return _called(spec.called, load(spec.called.callback), spec.where)
    match spec.work:
        case DeduplicateSpec() as work:
            return deduplicated(work, spec.outputs)
        case TopSpec(upserts=True, delete=text):
            condition = language_of(pipeline).compile(text).evaluate if text else None
            return FirstRows(LatestRow(deletion(condition)), spec.outputs, False)
        case TopSpec() as work:
            ranking = Ranking(work, language_of(pipeline).compile)
            return FirstRows(ranking, spec.outputs, takes_retractions(spec, pipeline))
        case OverSpec():
            return _over(spec, pipeline, load)
        case TableSpec() as work:
            return Tabled(work, spec.outputs)
        case CopiesSpec():
            return copied(spec, pipeline)
        case EnrichSpec(copied=True):
            return enriched_in_copies(spec, pipeline)
        case BranchesSpec(branches=branches, match_all=match_all):
            choose = compile_branches(branches, match_all, language_of(pipeline))
            return Branched(choose, _declared(spec, pipeline))
        case StepsSpec(steps=steps):
            whole = all(each.passes_on for each in steps)
            passed_on = _declared(spec, pipeline) if whole else {}
            apply = compile_steps(steps, load, language_of(pipeline))
            return Stepped(apply, spec.outputs, passed_on)
        case RegularJoinSpec():
            make = regular_join if len(spec.inputs) == 2 else several_join
            return make(spec, declared_fields(spec, pipeline))
        case IntervalJoinSpec():
            compiled = language_of(pipeline).compile
            return interval_join(spec, compiled, declared_fields(spec, pipeline))
    return joined(spec, pipeline)


def _declared(spec: ComputationSpec, pipeline: PipelineSpec) -> dict[str, tuple[str, ...]]:
    """The fields that the source of each input declares, in their order."""
    names = [each.stream for each in spec.inputs]
    return dict(zip(names, declared_fields(spec, pipeline), strict=True))


def _over(spec: ComputationSpec, pipeline: PipelineSpec, load: Callable[[str], Any]) -> Computation:
    work = spec.work_as(OverSpec)
    compiled = language_of(pipeline).compile
    aggregation = compile_aggregation(work.aggregates, compiled, load, work.condition)
    inputs = [each.stream for each in spec.inputs]
    sources = frozenset(name for name in inputs if pipeline.stream(name).source is not None)
    about = pipeline.name, spec.name
    most = pipeline.limits.state
    return Over(work, aggregation, inputs, sources, spec.outputs, most, about)


def _called(called: CallbackSpec, kind: Any, where: str) -> Computation:
    try:
        instance = kind(**revealed(called.options))
    except TypeError as ex:
        raise SetupError(
            f"{where}: {called.callback}({dict(called.options)}) cannot be built: {ex}"
        ) from ex
    except FileNotFoundError as ex:
        text = f"{ex}{missing_file_hint(ex)}"
        raise SetupError(f"{where}: {called.callback} cannot be built: {text}") from ex
    if not isinstance(instance, Computation):
        raise SetupError(
            f"{where}: {called.callback} is not a millwheel.Computation; derive the class from it"
        )
    return instance
