"""Windows that can fire more than once, where only their newest row is seen: the mode must be
written. And windows that cannot, although late records are allowed.

By default each pane contains the records since the last firing. That is right where panes are added
up. Where a row replaces the one before it, as in a table by key or in an answer, a part would
replace the whole, in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millwheel.connect.own_functions import named_alone
from millwheel.core.expressions.language import formula_of
from millwheel.core.machines.specs import windowing_from_spec
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import (
    CallbackSpec,
    DeduplicateSpec,
    JoinSpec,
    OverSpec,
    SlicesSpec,
    TopSpec,
    WindowedSpec,
)
from millwheel.core.windows.contract import LatePolicy, Windowing
from millwheel.core.windows.triggers import Default
from millwheel.language.spec.checks.topology import find
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader

Load = Callable[[str], Any]


def check_firing_again(
    reader: NodeReader, spec: PipelineSpec, top: YamlNode, replacing: Mapping[str, str], load: Load
) -> None:
    """Note each window whose accumulation is not written although it decides the visible result.
    ``replacing``: the streams with a sink that replaces rows, and the kind of that sink."""
    for computation in spec.computations:
        node = find(top, "computations", computation.name)
        written = isinstance(node.value, dict) and "accumulation" in node.value
        written = written or computation.is_change_log  # whose versions are always whole
        if written or computation.windowed is None or isinstance(computation.work, JoinSpec):
            continue
        if reader.problems.concerns(f"computations.{computation.name}"):
            continue
        why = why_again(windowing_from_spec(computation, load))
        seen = _seen(computation, spec, replacing)
        if why and seen:
            reader.bad(
                node,
                f"its windows can fire more than once ({why}), and {seen}, but by default each"
                " firing has only the records since the last one; write accumulation: accumulating"
                " (all records so far), or accumulation: discarding if the newest part alone is"
                " wanted",
            )


def check_lateness(reader: NodeReader, spec: PipelineSpec, top: YamlNode, load: Load) -> None:
    """Warns of windows that are closed behind their end, so that lateness has no effect there."""
    for computation in spec.computations:
        node = find(top, "computations", computation.name, "allowed_lateness")
        if not computation.firing.allowed_lateness_us:
            continue
        if reader.problems.concerns(f"computations.{computation.name}"):
            continue
        if windowing_from_spec(computation, load).trigger.ends_on_time:
            reader.problems.warn(
                node.line,
                node.path,
                "each window closes as it fires at its end, because its trigger has finished by"
                " then, so records that come later are late all the same; write late:"
                " {after_count: 1} in after_watermark, so that it fires for them, too, or leave out"
                " allowed_lateness",
            )


def why_again(windowing: Windowing) -> str:
    """The option that can make a window fire more than once, in words; "" if none does."""
    if windowing.late is LatePolicy.REFIRE:
        return "late: refire"
    trigger = windowing.trigger
    if isinstance(trigger, Default):
        return "allowed_lateness" if windowing.allowed_lateness else ""
    return "" if trigger.fires_once else "its trigger"


def _seen(computation: ComputationSpec, spec: PipelineSpec, replacing: Mapping[str, str]) -> str:
    """Where only the newest row of a window is seen, in words; "" where none does."""
    if computation.queryable or any(
        computation.name
        in formula_of(each.formula, named_alone(spec.functions).compile).computations
        for each in spec.queries
    ):
        return "questions are answered by the newest"
    streams = _reached(computation.outputs, spec)
    stream = next((stream for stream in replacing if stream in streams), None)
    return (
        f"the sink of {stream!r} ({replacing[stream]}) replaces the row of a window"
        if stream is not None
        else ""
    )


def _reached(outputs: tuple[str, ...], spec: PipelineSpec) -> set[str]:
    """The streams to which rows come one by one, with any changes to their fields on the way."""
    reached, before = set(outputs), 0
    while len(reached) > before:
        before = len(reached)
        for each in spec.computations:
            if _passes_on(each) and any(node_input.stream in reached for node_input in each.inputs):
                reached.update(each.outputs)
    return reached


def _passes_on(computation: ComputationSpec) -> bool:
    """Whether each record goes on by itself, be it with other fields or a partner."""
    return not isinstance(
        computation.work,
        CallbackSpec | WindowedSpec | SlicesSpec | DeduplicateSpec | OverSpec | TopSpec,
    )
