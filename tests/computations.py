"""Computations for tests, by the words of a pipeline file."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from millwheel.core.pipeline.spec import ComputationSpec, InputSpec
from millwheel.core.pipeline.work import (
    AggregationSpec,
    BranchesSpec,
    CallbackSpec,
    FiringSpec,
    JoinSpec,
    SlicesSpec,
    StepsSpec,
    WindowCallbackSpec,
    WindowedSpec,
    WindowSpec,
    Work,
)

_OF_EVERY = {each.name for each in fields(ComputationSpec)}
_FIRING = {each.name for each in fields(FiringSpec)}


def computation_spec(
    name: str, inputs: tuple[InputSpec, ...] = (), outputs: tuple[str, ...] = (), **given: Any
) -> ComputationSpec:
    """``given`` has what every computation has, and the settings of one kind of work."""
    common = {key: value for key, value in given.items() if key in _OF_EVERY}
    work = {
        key: value for key, value in given.items() if key not in _OF_EVERY and value is not None
    }
    return ComputationSpec(
        name, inputs, outputs, **({"work": work_of(**work)} if work else {}), **common
    )


def work_of(window: WindowSpec | None = None, callback: str = "", **given: Any) -> Work:
    """The work that these settings make."""
    if window is not None:
        return _in_windows(window, callback, given)
    if callback:
        return CallbackSpec(callback, **given)
    if "slices" in given:
        slices: SlicesSpec = given["slices"]
        kept = ("aggregates", "condition", "late")
        return replace(slices, **{name: given[name] for name in kept if name in given})
    if "steps" in given:
        return StepsSpec(**given)
    if "branches" in given:
        return BranchesSpec(**given)
    (work,) = given.values()
    return work  # type: ignore[no-any-return]


def _in_windows(window: WindowSpec, callback: str, given: dict[str, Any]) -> Work:
    firing = FiringSpec(**{name: given.pop(name) for name in _FIRING & given.keys()})
    common: dict[str, Any] = {
        "window": window,
        "firing": firing,
        "condition": given.pop("condition", ""),
    }
    if callback:
        return WindowCallbackSpec(callback=CallbackSpec(callback, **given), **common)
    if "join" in given:
        return JoinSpec(kind=given.pop("join"), **common, **given)
    return AggregationSpec(**common, **given)


def changed(spec: ComputationSpec, **given: Any) -> ComputationSpec:
    """The computation with other settings, also of its work."""
    common = {key: value for key, value in given.items() if key in _OF_EVERY}
    work = {**settings_of(spec.work), **{k: v for k, v in given.items() if k not in _OF_EVERY}}
    kept = {key: value for key, value in work.items() if value not in (None, ())}
    return replace(spec, work=work_of(**kept), **common)


def settings_of(work: Work) -> dict[str, Any]:
    """The settings that make this work."""
    found = {each.name: getattr(work, each.name) for each in fields(work)}
    match work:
        case WindowedSpec():
            firing = found.pop("firing")
            found |= {each.name: getattr(firing, each.name) for each in fields(firing)}
            if isinstance(work, WindowCallbackSpec):
                found |= {"callback": work.callback.callback, "options": work.callback.options}
            if isinstance(work, JoinSpec):
                found["join"] = found.pop("kind")
        case SlicesSpec():
            kept = ("aggregates", "condition", "late")
            found = {"slices": work, **{name: found[name] for name in kept}}
        case CallbackSpec() | StepsSpec() | BranchesSpec():
            pass
        case _:
            found = {"work": work}
    return found
