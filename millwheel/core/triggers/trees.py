"""The YAML form of triggers: a name, or a map from one name to its arguments.

trigger: {after_watermark: {early: {after_processing_time: 1m}, late: {after_count: 1}}}
trigger: {repeat: {any: [{after_count: 100}, {after_processing_time: 10s}]}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millwheel.core.triggers.combinations import AfterAll, AfterAny, AfterEach, Once, OrFinally, Repeat
from millwheel.core.triggers.triggers import (
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


def trigger_from_tree(tree: Any, load: Load | None = None) -> Trigger:
    """The trigger that a plain tree describes; None is the default one.

    ``load("module:Class")`` finds custom ones; one that returns the name unchanged serves to check a tree without
    loading anything. ValueError with the path in the tree and the fix.
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
        build = BUILDERS.get(name)
        if build is None:
            raise self.error(f"unknown trigger {name!r}; there are {', '.join(sorted(BUILDERS))}")
        inner = self.at(name)
        try:
            return build(argument, inner)
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
            raise self.error("needs a list of triggers, such as [{after_count: 100}, {after_processing_time: 10s}]")
        return [self.at(str(i)).read(tree) for i, tree in enumerate(argument)]

    def error(self, text: str) -> _Located:
        return _Located(f"{self.path}: {text}")

    def _split(self, tree: Any) -> tuple[str, Any]:
        if isinstance(tree, str):
            return tree, None
        if isinstance(tree, Mapping) and len(tree) == 1:
            name, argument = next(iter(tree.items()))
            return str(name), argument
        raise self.error(f"is one trigger: a name, or a map with one name such as {{after_count: 10}}; not {tree!r}")


class _Located(ValueError):
    """An error that already names its path."""


def _after_watermark(argument: Any, reader: _Reader) -> Trigger:
    found = reader.fields(argument, ("early", "late"), "{after_watermark: {early: {after_count: 2}}}")
    return AfterWatermark(**{name: reader.at(name).read(tree) for name, tree in found.items() if tree is not None})


def _after_processing_time(argument: Any, reader: _Reader) -> Trigger:
    if not isinstance(argument, Mapping):
        return AfterProcessingTime(0 if argument is None else argument)
    return AfterProcessingTime(**reader.fields(argument, ("delay", "align"), "{delay: 1m, align: 1m}"))


def _or_finally(argument: Any, reader: _Reader) -> Trigger:
    found = reader.fields(argument, ("main", "until"), "{or_finally: {main: {after_count: 2}, until: after_watermark}}")
    if len(found) < 2:
        raise reader.error("needs both `main` and `until`")
    return OrFinally(reader.at("main").read(found["main"]), reader.at("until").read(found["until"]))


def _custom(argument: Any, reader: _Reader) -> Trigger:
    found: dict[str, Any] = {"class": argument}
    if not isinstance(argument, str):
        found = reader.fields(argument, ("class", "with"), "{custom: {class: 'module:Class', with: {limit: 3}}}")
    if "class" not in found or reader.load is None:
        raise reader.error("needs the class of the trigger; write {custom: 'module:Class'}")
    loaded = reader.load(found["class"])
    if isinstance(loaded, str):
        return Never()
    made = loaded(**(found.get("with") or {}))
    if isinstance(made, Trigger):
        return made
    raise reader.error(f"{found['class']} is no trigger; derive it from millwheel.Trigger")


BUILDERS: dict[str, _Build] = {
    "default": lambda argument, reader: Default(),
    "never": lambda argument, reader: Never(),
    "after_watermark": _after_watermark,
    "after_count": lambda argument, reader: AfterCount(argument),
    "after_bytes": lambda argument, reader: AfterBytes(argument),
    "after_processing_time": _after_processing_time,
    "after_percentile_watermark": lambda argument, reader: AfterPercentileWatermark(argument),
    "repeat": lambda argument, reader: Repeat(reader.read(argument)),
    "once": lambda argument, reader: Once(reader.read(argument)),
    "any": lambda argument, reader: AfterAny(*reader.several(argument)),
    "all": lambda argument, reader: AfterAll(*reader.several(argument)),
    "each": lambda argument, reader: AfterEach(*reader.several(argument)),
    "or_finally": _or_finally,
    "custom": _custom,
}
