"""The form of triggers in a file, read and written: a name, or a map from one name to its argument.

trigger: {after_watermark: {early: {after_processing_time: 1m}, late: {after_count: 1}}}
trigger: {repeat: {any: [{after_count: 100}, {after_processing_time: 10s}]}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from millwheel.core.model.times import duration_text
from millwheel.core.windows.combinations import (
    AfterAll,
    AfterAny,
    AfterEach,
    Once,
    OrFinally,
    Repeat,
)
from millwheel.core.windows.triggers import (
    AfterBytes,
    AfterCount,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    Never,
    Trigger,
)

Load = Callable[[str], Any]
_Build = Callable[[Any, "_Reader"], Trigger]
_Tree = Callable[[Trigger], Any]
_AROUND = ("early", "late")
_EITHER = ("main", "until")
_CUSTOM = "custom"


def trigger_from_tree(tree: Any, load: Load | None = None) -> Trigger:
    """The trigger that a plain tree describes; None is the default one.

    ``load("module:Class")`` finds custom ones; one that returns the name unchanged serves to check
    a tree without loading anything. ValueError with the path in the tree and the fix.
    """
    return Default() if tree is None else _Reader(load, "trigger").read(tree)


class _Reader:
    """Reads one node; ``path`` is its position in the tree, for errors."""

    def __init__(self, load: Load | None, path: str) -> None:
        self.load = load
        self.path = path

    def at(self, name: str) -> _Reader:
        return _Reader(self.load, f"{self.path}.{name}")

    def read(self, tree: Any) -> Trigger:
        name, argument = self._split(tree)
        form = FORMS.get(name)
        if form is None and name != _CUSTOM:
            raise self.error(f"unknown trigger {name!r}; there are {', '.join(sorted(NAMES))}")
        inner = self.at(name)
        try:
            return _custom(argument, inner) if form is None else form.read(argument, inner)
        except _Located:
            raise
        except (ValueError, TypeError) as ex:
            raise inner.error(str(ex)) from ex

    def fields(self, argument: Any, names: tuple[str, ...], example: str) -> dict[str, Any]:
        """``argument`` as a map with no other fields than ``names``."""
        if argument is None:
            return {}
        if not isinstance(argument, Mapping):
            raise self.error(f"must be a map; write for example {example}")
        for unknown in sorted(set(argument) - set(names)):
            raise self.error(f"has no field {unknown!r}; it has {', '.join(names)}")
        return dict(argument)

    def several(self, argument: Any) -> list[Trigger]:
        if not isinstance(argument, list) or not argument:
            raise self.error(
                "needs a list of triggers, such as [{after_count: 100}, {after_processing_time:"
                " 10s}]"
            )
        return [self.at(str(i)).read(tree) for i, tree in enumerate(argument)]

    def error(self, text: str) -> _Located:
        return _Located(f"{self.path}: {text}")

    def _split(self, tree: Any) -> tuple[str, Any]:
        if isinstance(tree, str):
            return tree, None
        if isinstance(tree, Mapping) and len(tree) == 1:
            name, argument = next(iter(tree.items()))
            return str(name), argument
        raise self.error(
            "is one trigger: a name, or a map with one name such as {after_count: 10}; not"
            f" {tree!r}"
        )


class _Located(ValueError):
    """An error that already names its path."""


def _after_watermark(argument: Any, reader: _Reader) -> Trigger:
    fields = reader.fields(argument, _AROUND, "{after_watermark: {early: {after_count: 2}}}")
    return AfterWatermark(
        **{name: reader.at(name).read(tree) for name, tree in fields.items() if tree is not None}
    )


def _after_processing_time(argument: Any, reader: _Reader) -> Trigger:
    if not isinstance(argument, Mapping):
        return AfterProcessingTime(0 if argument is None else argument)
    return AfterProcessingTime(
        **reader.fields(argument, ("delay", "align"), "{delay: 1m, align: 1m}")
    )


def _or_finally(argument: Any, reader: _Reader) -> Trigger:
    fields = reader.fields(
        argument,
        _EITHER,
        "{or_finally: {main: {after_count: 2}, until: after_watermark}}",
    )
    if len(fields) < 2:
        raise reader.error("needs both `main` and `until`")
    return OrFinally(
        reader.at("main").read(fields["main"]), reader.at("until").read(fields["until"])
    )


def _custom(argument: Any, reader: _Reader) -> Trigger:
    fields: dict[str, Any] = {"class": argument}
    if not isinstance(argument, str):
        fields = reader.fields(
            argument, ("class", "with"), "{custom: {class: 'module:Class', with: {limit: 3}}}"
        )
    if "class" not in fields or reader.load is None:
        raise reader.error("needs the class of the trigger; write {custom: 'module:Class'}")
    loaded = reader.load(fields["class"])
    if isinstance(loaded, str):
        return Never()
    trigger = loaded(**(fields.get("with") or {}))
    if isinstance(trigger, Trigger):
        return trigger
    raise reader.error(f"{fields['class']} is no trigger; derive it from millwheel.Trigger")


def _parts(names: tuple[str, ...], parts: tuple[Trigger | None, ...], inner: _Tree) -> Any:
    """Triggers by name; None where there is none."""
    pairs = zip(names, parts, strict=True)
    return {name: inner(part) for name, part in pairs if part is not None} or None


def _time(trigger: AfterProcessingTime, inner: _Tree) -> Any:
    delay = duration_text(trigger.delay)
    return {"delay": delay, "align": duration_text(trigger.align)} if trigger.align else delay


@dataclass(frozen=True, slots=True)
class _Form:
    """A trigger in a file: ``read`` makes it of the argument behind its name, ``write`` is the
    inverse (None: there is no argument)."""

    kind: type[Trigger]
    read: _Build
    write: Callable[[Any, _Tree], Any] = lambda trigger, inner: None


def _several(kind: type[AfterAny | AfterAll | AfterEach]) -> _Form:
    return _Form(
        kind,
        lambda argument, reader: kind(*reader.several(argument)),
        lambda trigger, inner: [inner(part) for part in trigger.parts],
    )


FORMS: dict[str, _Form] = {
    "default": _Form(Default, lambda argument, reader: Default()),
    "never": _Form(Never, lambda argument, reader: Never()),
    "after_watermark": _Form(
        AfterWatermark,
        _after_watermark,
        lambda trigger, inner: _parts(_AROUND, (trigger.early, trigger.late), inner),
    ),
    "after_count": _Form(
        AfterCount,
        lambda argument, reader: AfterCount(argument),
        lambda trigger, inner: trigger.count,
    ),
    "after_bytes": _Form(
        AfterBytes,
        lambda argument, reader: AfterBytes(argument),
        lambda trigger, inner: trigger.size,
    ),
    "after_processing_time": _Form(AfterProcessingTime, _after_processing_time, _time),
    "after_percentile_watermark": _Form(
        AfterPercentileWatermark,
        lambda argument, reader: AfterPercentileWatermark(argument),
        lambda trigger, inner: trigger.share,
    ),
    "repeat": _Form(
        Repeat,
        lambda argument, reader: Repeat(reader.read(argument)),
        lambda trigger, inner: inner(trigger.trigger),
    ),
    "once": _Form(
        Once,
        lambda argument, reader: Once(reader.read(argument)),
        lambda trigger, inner: inner(trigger.trigger),
    ),
    "any": _several(AfterAny),
    "all": _several(AfterAll),
    "each": _several(AfterEach),
    "or_finally": _Form(
        OrFinally,
        _or_finally,
        lambda trigger, inner: _parts(_EITHER, trigger.parts, inner),
    ),
}
"""All triggers but those of the user's own code, which are ``custom``."""
NAMES = (*FORMS, _CUSTOM)
_NAME_OF = {form.kind: name for name, form in FORMS.items()}


def trigger_tree(trigger: Trigger, custom: Callable[[Trigger], Any]) -> Any:
    """The inverse of :func:`trigger_from_tree`. ``custom(trigger)`` names one of the user's own."""
    name = _NAME_OF.get(type(trigger))
    if name is None:
        return {_CUSTOM: custom(trigger)}
    argument = FORMS[name].write(trigger, lambda inner: trigger_tree(inner, custom))
    return name if argument is None else {name: argument}
