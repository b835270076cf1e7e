"""From specs, as YAML and the Python API leave them, to windowing, aggregation and machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from millwheel.core.aggregates.aggregation import Buffered, Evaluate, Growing
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.machines.choice import make_machine
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec
from millwheel.core.pipeline.work import FOREVER, JoinSpec, WindowCallbackSpec, WindowSpec
from millwheel.core.slices.levels import slice_levels
from millwheel.core.windows.contract import LatePolicy, Machine, Windowing
from millwheel.core.windows.kinds import WINDOW_KINDS
from millwheel.core.windows.panes import Accumulation, OutputTime, stated_window
from millwheel.core.windows.trees import trigger_from_tree
from millwheel.core.windows.windows import (
    Count,
    Cumulative,
    Custom,
    Forever,
    Global,
    OfInput,
    SessionPieces,
    Sessions,
    Sliding,
    Tumbling,
    Window,
    WindowFunction,
    WindowPieces,
)

Load = Callable[[str], Any]
"""``module:name`` -> the object."""
E_ = TypeVar("E_", bound=Enum)


_SLICES = "slices"
"""The kind of the slices of one part of a divided key. No file names it."""


def _slices(size_us: int, time_zone: str = "") -> WindowPieces:
    """WindowPieces for slices, which are queried before their end."""
    (level,) = slice_levels([size_us], time_zone)
    return WindowPieces(level.bounds, at_once=True)


def window_from_spec(spec: WindowSpec, load: Load | None = None) -> WindowFunction:
    """The window function of a spec. ValueError, with the fix, for unknown kinds and impossible
    settings."""
    if spec.kind == "custom":
        return _custom(spec.options, load)
    if spec.kind == _SLICES:
        return _slices(**spec.options)
    if spec.kind == FOREVER:
        return Forever(spec.options.get("ttl_us"))
    kind = WINDOW_KINDS.get(spec.kind)
    if kind is None:
        kinds = ", ".join(sorted([*WINDOW_KINDS, "custom"]))
        raise ValueError(f"unknown kind of window {spec.kind!r}; there are {kinds}")
    names = {option.setting: option.attribute for option in kind.options}
    for option in sorted(set(spec.options) - set(names)):
        raise ValueError(
            f"{spec.kind} windows have no setting {option!r}; they have"
            f" {', '.join(names) or 'none'}"
        )
    return kind.make(
        **{names[option]: value for option, value in spec.options.items() if value is not None}
    )


def _custom(options: Mapping[str, Any], load: Load | None) -> WindowFunction:
    if load is None or "factory" not in options:
        raise ValueError("custom windows need a factory; write window: {custom: 'module:function'}")
    settings = {name: value for name, value in options.items() if name != "factory"}
    window_function = load(options["factory"])(**settings)
    if isinstance(
        window_function, (Tumbling, Sliding, Sessions, Global, Count, Cumulative, OfInput, Custom)
    ):
        return window_function
    assign = getattr(window_function, "assign", None)
    if callable(assign):
        return Custom(assign, getattr(window_function, "merge", None))
    raise ValueError(
        f"{options['factory']} must return an object with assign(timestamp), and merge(windows) if"
        f" its windows merge; it returned {type(window_function).__name__}"
    )


def windowing_from_spec(
    spec: ComputationSpec, load: Load | None = None, takes_retractions: bool = False
) -> Windowing:
    """The windows, triggers and accumulation of a computation. Raises ValueError, with the fix, for
    settings that cannot work."""
    windowed = spec.windowed
    if windowed is None:
        raise ValueError(f"{spec.name} has no window; write for example window: {{tumbling: 1m}}")
    firing = windowed.firing
    window = window_from_spec(windowed.window, load)
    return Windowing(
        window=_of_stage(window, spec.stage),
        trigger=trigger_from_tree(firing.trigger, load),
        accumulation=_choice(Accumulation, firing.accumulation, "accumulation"),
        allowed_lateness=firing.allowed_lateness_us,
        output_time=_choice(OutputTime, firing.output_time, "output_time"),
        late=LatePolicy.REFIRE if firing.late == LatePolicy.REFIRE.value else LatePolicy.DROP,
        takes_retractions=takes_retractions,
        stated_in=_stated_in(spec, window),
    )


def _stated_in(spec: ComputationSpec, window: WindowFunction) -> Callable[[Any], Window] | None:
    """A function that finds the window in a value, where the window of the input cannot."""
    if spec.stage is AggregationStage.FINAL:
        return stated_window
    if isinstance(window, OfInput) and isinstance(spec.work, WindowCallbackSpec | JoinSpec):
        return lambda numbered: window.window_of(numbered[1])
    return None


def _of_stage(window: WindowFunction, stage: AggregationStage) -> WindowFunction:
    """The windows of a stage. Silent keys, the ends of sessions, and the changes of a key's result
    are found where its instances come together, not before."""
    if stage is AggregationStage.PARTIAL and isinstance(window, Sessions):
        return SessionPieces(window.gap)
    if stage is AggregationStage.PARTIAL and isinstance(window, Tumbling) and window.empty:
        return Tumbling(window.size, window.offset, window.time_zone)
    if stage is AggregationStage.PARTIAL and isinstance(window, Sliding) and window.changes:
        return WindowPieces(Tumbling(window.every, window.offset % window.every).window)
    if stage is AggregationStage.PARTIAL and isinstance(window, Cumulative):
        return WindowPieces(window.step_bounds)
    return window


def machine_from_spec(
    spec: ComputationSpec,
    compile_expression: Callable[[str], Any],
    load: Load | None = None,
    takes_retractions: bool = False,
) -> Machine:
    """The machine of a computation with a window. ``compile_expression(text)`` returns an object
    with ``evaluate(value)``. Without aggregates the panes hold the records, as [value, timestamp];
    with a callback their values are [number of the input, value]."""
    windowing = windowing_from_spec(spec, load, takes_retractions)
    if spec.aggregates:
        arguments = (spec.aggregates, compile_expression, load, spec.condition, spec.stage)
        return make_machine(windowing, compile_aggregation(*arguments, takes_retractions))
    condition = compile_expression(spec.condition).evaluate if spec.condition else None
    if isinstance(spec.work, WindowCallbackSpec) and condition is not None:
        return make_machine(windowing, Buffered(_of_numbered(condition)))
    if isinstance(spec.work, JoinSpec) and spec.work.changes and not takes_retractions:
        return make_machine(windowing, Growing())
    return make_machine(windowing, Buffered(condition))


def _of_numbered(condition: Evaluate) -> Evaluate:
    return lambda numbered: condition(numbered[1])


def _choice(kind: type[E_], text: str, field: str) -> E_:
    for member in kind:
        if member.value == text:
            return member
    raise ValueError(
        f"{field} must be one of {', '.join(str(member.value) for member in kind)}, not {text!r}"
    )
