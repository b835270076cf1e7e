"""Which joins take whole bundles, and which take each record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millwheel.core.columns.state.near_pairs import NearPairing, near_pairing_or_why
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
from millwheel.core.windows.panes import OutputTime
from millwheel.core.windows.windows import (
    OfInput,
    Tumbling,
)

_JOINED_WHOLE = ("tumbling", "of")
"""Kinds of windows of which a record has one."""
_KINDS_IN_COLUMNS = (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.OUTER)
"""Kinds of joins that take whole bundles."""


def window_of_join(spec: ComputationSpec, pipeline: PipelineSpec) -> Tumbling | OfInput | None:
    """The windows of a join that can do without an entry for each key and window; None for what
    cannot. Weak productions are named by single records."""
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
        return "timers behind it go by the place of each record"
    return near_pairing_or_why(spec, pipeline, compile_expression)


def near_pairings(
    pipeline: PipelineSpec, compile_expression: Callable[[str], Any], labels: Labels
) -> dict[str, NearPairing]:
    """How joins without a window take whole bundles, by name, where they do."""
    found = {
        spec.name: near_pairing(spec, pipeline, compile_expression, labels)
        for spec in pipeline.computations
    }
    return {name: each for name, each in found.items() if isinstance(each, NearPairing)}
