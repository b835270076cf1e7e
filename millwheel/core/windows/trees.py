"""The form of triggers in a file, read and written: a name, or a map from one name to its argument.

trigger: {after_watermark: {early: {after_processing_time: 1m}, late: {after_count: 1}}}
trigger: {repeat: {any: [{after_count: 100}, {after_processing_time: 10s}]}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any

from millwheel.core.model.times import duration_text, duration_us
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
_CUSTOM = "custom"


def trigger_from_tree(tree: Any, load: Load | None = None) -> Trigger:
    """The trigger that a plain tree describes; None is the default one.

    ``load("module:Class")`` finds custom triggers; a ``load`` that returns the name unchanged
    serves to check a tree without loading anything. Raises ValueError with the path in the tree and
    the fix.
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
            close = get_close_matches(name, NAMES, 1, 0.75)
            hint = f"; did you mean {close[0]!r}? There" if close else "; there"
            raise self.error(f"unknown trigger {name!r}{hint} are {', '.join(sorted(NAMES))}")
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


def _after_processing_time(argument: Any, reader: _Reader) -> Trigger:
    if not isinstance(argument, Mapping):
        return AfterProcessingTime(0 if argument is None else argument)
    return AfterProcessingTime(
        **reader.fields(argument, ("delay", "align"), "{delay: 1m, align: 1m}")
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
    raise reader.error(f"{fields['class']} is not a trigger; derive it from millwheel.Trigger")


def _time(trigger: AfterProcessingTime, inner: _Tree) -> Any:
    delay = duration_text(trigger.delay)
    return {"delay": delay, "align": duration_text(trigger.align)} if trigger.align else delay


class InnerTriggers(Enum):
    """The triggers in the argument of a trigger."""

    NONE = "none"
    ONE = "one"
    SEVERAL = "several"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class TriggerForm:
    """A trigger in a file: ``read`` makes it of the argument behind its name, ``write`` is the
    inverse (None: there is no argument). ``inner`` are the triggers in it, by their ``names``;
    ``needed`` when none of these may be left out. ``short`` for others: it is not written."""

    kind: type[Trigger]
    read: _Build
    write: Callable[[Any, _Tree], Any] = lambda trigger, inner: None
    inner: InnerTriggers = InnerTriggers.NONE
    names: tuple[str, ...] = ()
    needed: bool = False
    short: bool = False


def _every(argument: Any, reader: _Reader) -> Trigger:
    """All windows together, at multiples of a duration of the wall clock."""
    us = duration_us(argument)
    if us <= 0:
        raise reader.error(f"needs a time between two firings such as 1s, not {argument!r}")
    return Repeat(AfterProcessingTime(0, us))


def _of_one(kind: type[Repeat | Once]) -> TriggerForm:
    return TriggerForm(
        kind,
        lambda argument, reader: kind(reader.read(argument)),
        lambda trigger, inner: inner(trigger.trigger),
        InnerTriggers.ONE,
    )


def _of_several(kind: type[AfterAny | AfterAll | AfterEach]) -> TriggerForm:
    return TriggerForm(
        kind,
        lambda argument, reader: kind(*reader.several(argument)),
        lambda trigger, inner: [inner(part) for part in trigger.parts],
        InnerTriggers.SEVERAL,
    )


def _of_named(
    kind: type[Trigger],
    names: tuple[str, ...],
    parts: Callable[[Any], tuple[Trigger | None, ...]],
    example: str,
    needed: bool = False,
) -> TriggerForm:
    """``parts`` are the triggers in one, in the order of ``names``."""
    make: Callable[..., Trigger] = kind

    def read(argument: Any, reader: _Reader) -> Trigger:
        trees = reader.fields(argument, names, example)
        if needed and len(trees) < len(names):
            raise reader.error(f"needs both {' and '.join(f'`{name}`' for name in names)}")
        return make(
            *(
                reader.at(name).read(trees[name]) if needed or trees.get(name) is not None else None
                for name in names
            )
        )

    def write(trigger: Trigger, inner: _Tree) -> Any:
        pairs = zip(names, parts(trigger), strict=True)
        return {name: inner(part) for name, part in pairs if part is not None} or None

    return TriggerForm(kind, read, write, InnerTriggers.NAMED, names, needed)


FORMS: dict[str, TriggerForm] = {
    "default": TriggerForm(Default, lambda argument, reader: Default()),
    "never": TriggerForm(Never, lambda argument, reader: Never()),
    "after_watermark": _of_named(
        AfterWatermark,
        ("early", "late"),
        lambda trigger: (trigger.early, trigger.late),
        "{after_watermark: {early: {after_count: 2}}}",
    ),
    "after_count": TriggerForm(
        AfterCount,
        lambda argument, reader: AfterCount(argument),
        lambda trigger, inner: trigger.count,
    ),
    "after_bytes": TriggerForm(
        AfterBytes,
        lambda argument, reader: AfterBytes(argument),
        lambda trigger, inner: trigger.size,
    ),
    "after_processing_time": TriggerForm(AfterProcessingTime, _after_processing_time, _time),
    "after_percentile_watermark": TriggerForm(
        AfterPercentileWatermark,
        lambda argument, reader: AfterPercentileWatermark(argument),
        lambda trigger, inner: trigger.share,
    ),
    "repeat": _of_one(Repeat),
    "every": TriggerForm(Repeat, _every, short=True),
    "once": _of_one(Once),
    "any": _of_several(AfterAny),
    "all": _of_several(AfterAll),
    "each": _of_several(AfterEach),
    "or_finally": _of_named(
        OrFinally,
        ("main", "until"),
        lambda trigger: trigger.parts,
        "{or_finally: {main: {after_count: 2}, until: after_watermark}}",
        needed=True,
    ),
}
"""All triggers but those of the user's own code, which are ``custom``."""
NAMES = (*FORMS, _CUSTOM)
_NAME_OF = {form.kind: name for name, form in FORMS.items() if not form.short}


def trigger_tree(trigger: Trigger, custom: Callable[[Trigger], Any]) -> Any:
    """The inverse of :func:`trigger_from_tree`. ``custom(trigger)`` names one of the user's own."""
    name = _NAME_OF.get(type(trigger))
    if name is None:
        return {_CUSTOM: custom(trigger)}
    argument = FORMS[name].write(trigger, lambda inner: trigger_tree(inner, custom))
    return name if argument is None else {name: argument}
