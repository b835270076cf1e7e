"""From specs, as YAML and the Python API leave them, to windowing, aggregation and machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from millwheel.core.aggregates.aggregation import Buffered, Evaluate
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.machines.choice import make_machine
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec, WindowSpec
from millwheel.core.triggers.trees import trigger_from_tree
from millwheel.core.windowing.contract import LatePolicy, Machine, Windowing
from millwheel.core.windows.panes import Accumulation, OutputTime
from millwheel.core.windows.windows import (
    Count,
    Cumulative,
    Custom,
    Global,
    SessionPieces,
    Sessions,
    Sliding,
    Tumbling,
    WindowFunction,
)

Load = Callable[[str], Any]
"""``module:name`` -> the object."""
E_ = TypeVar("E_", bound=Enum)

_KINDS: dict[str, tuple[Callable[..., WindowFunction], Mapping[str, str]]] = {
    "tumbling": (Tumbling, {"size_us": "size", "offset_us": "offset", "time_zone": "time_zone", "empty": "empty"}),
    "sliding": (Sliding, {"size_us": "size", "every_us": "every", "offset_us": "offset", "changes": "changes"}),
    "session": (Sessions, {"gap_us": "gap"}),
    "global": (Global, {}),
    "count": (Count, {"count": "count"}),
    "cumulative": (
        Cumulative,
        {"size_us": "size", "every_us": "every", "offset_us": "offset", "time_zone": "time_zone", "changes": "changes"},
    ),
}


def window_from_spec(spec: WindowSpec, load: Load | None = None) -> WindowFunction:
    """The window function of a spec. ValueError, with the fix, for unknown kinds and impossible settings."""
    if spec.kind == "custom":
        return _custom(spec.options, load)
    if spec.kind not in _KINDS:
        kinds = ", ".join(sorted([*_KINDS, "custom"]))
        raise ValueError(f"unknown kind of window {spec.kind!r}; there are {kinds}")
    make, names = _KINDS[spec.kind]
    for option in sorted(set(spec.options) - set(names)):
        raise ValueError(f"{spec.kind} windows have no setting {option!r}; they have {', '.join(names) or 'none'}")
    return make(**{names[option]: value for option, value in spec.options.items() if value is not None})


def _custom(options: Mapping[str, Any], load: Load | None) -> WindowFunction:
    if load is None or "factory" not in options:
        raise ValueError("custom windows need a factory; write window: {custom: 'module:function'}")
    settings = {name: value for name, value in options.items() if name != "factory"}
    made = load(options["factory"])(**settings)
    if isinstance(made, (Tumbling, Sliding, Sessions, Global, Count, Cumulative, Custom)):
        return made
    assign = getattr(made, "assign", None)
    if callable(assign):
        return Custom(assign, getattr(made, "merge", None))
    raise ValueError(
        f"{options['factory']} must return an object with assign(timestamp), and merge(windows) if its windows "
        f"merge; it returned {type(made).__name__}"
    )


def windowing_from_spec(spec: ComputationSpec, load: Load | None = None, takes_retractions: bool = False) -> Windowing:
    """The windows, triggers and accumulation of a computation. Raises ValueError, with the fix, for settings that
    cannot work."""
    if spec.window is None:
        raise ValueError(f"{spec.name} has no window; write for example window: {{tumbling: 1m}}")
    return Windowing(
        window=_of_stage(window_from_spec(spec.window, load), spec.stage),
        trigger=trigger_from_tree(spec.trigger, load),
        accumulation=_choice(Accumulation, spec.accumulation, "accumulation"),
        allowed_lateness=spec.allowed_lateness_us,
        output_time=_choice(OutputTime, spec.output_time, "output_time"),
        late=LatePolicy.REFIRE if spec.late == LatePolicy.REFIRE.value else LatePolicy.DROP,
        takes_retractions=takes_retractions,
        stated=spec.stage is AggregationStage.FINAL,
    )


def _of_stage(window: WindowFunction, stage: AggregationStage) -> WindowFunction:
    """The windows of a stage. Whether a key was silent, and how long a session was, is known where its instances come
    together, not before."""
    if stage is AggregationStage.PARTIAL and isinstance(window, Sessions):
        return SessionPieces(window.gap)
    if stage is AggregationStage.PARTIAL and isinstance(window, Tumbling) and window.empty:
        return Tumbling(window.size, window.offset, window.time_zone)
    return window


def machine_from_spec(
    spec: ComputationSpec,
    compile_expression: Callable[[str], Any],
    load: Load | None = None,
    takes_retractions: bool = False,
) -> Machine:
    """The machine of a computation with a window. ``compile_expression(text)`` returns something with
    ``evaluate(value)``. Without aggregates the panes hold the records, as [value, timestamp]; with a callback their
    values are [number of the input, value]."""
    windowing = windowing_from_spec(spec, load, takes_retractions)
    if not spec.aggregates:
        condition = compile_expression(spec.condition).evaluate if spec.condition else None
        if spec.callback and condition is not None:
            return make_machine(windowing, Buffered(_of_numbered(condition)))
        return make_machine(windowing, Buffered(condition))
    aggregation = compile_aggregation(
        spec.aggregates, compile_expression, load, spec.condition, spec.stage, takes_retractions
    )
    return make_machine(windowing, aggregation)


def _of_numbered(condition: Evaluate) -> Evaluate:
    return lambda numbered: condition(numbered[1])


def _choice(kind: type[E_], text: str, field: str) -> E_:
    for member in kind:
        if member.value == text:
            return member
    raise ValueError(f"{field} must be one of {', '.join(str(member.value) for member in kind)}, not {text!r}")
