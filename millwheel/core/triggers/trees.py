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
    loading anything. ValueError with the place in the tree and the fix.
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
        name, given = self._split(tree)
        build = BUILDERS.get(name)
        if build is None:
            raise self.error(f"unknown trigger {name!r}; there are {', '.join(sorted(BUILDERS))}")
        inner = self.at(name)
        try:
            return build(given, inner)
        except _Placed:
            raise
        except (ValueError, TypeError) as ex:
            raise inner.error(str(ex)) from ex

    def fields(self, given: Any, names: tuple[str, ...], example: str) -> dict[str, Any]:
        """``given`` as a map with no other fields than ``names``."""
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise self.error(f"must be a map; write for example {example}")
        for unknown in sorted(set(given) - set(names)):
            raise self.error(f"has no field {unknown!r}; it has {', '.join(names)}")
        return dict(given)

    def several(self, given: Any) -> list[Trigger]:
        if not isinstance(given, list) or not given:
            raise self.error("needs a list of triggers, such as [{after_count: 100}, {after_processing_time: 10s}]")
        return [self.at(str(i)).read(tree) for i, tree in enumerate(given)]

    def error(self, text: str) -> _Placed:
        return _Placed(f"{self.path}: {text}")

    def _split(self, tree: Any) -> tuple[str, Any]:
        if isinstance(tree, str):
            return tree, None
        if isinstance(tree, Mapping) and len(tree) == 1:
            name, given = next(iter(tree.items()))
            return str(name), given
        raise self.error(f"is one trigger: a name, or a map with one name such as {{after_count: 10}}; not {tree!r}")


class _Placed(ValueError):
    """An error that already names its place."""


def _after_watermark(given: Any, reader: _Reader) -> Trigger:
    found = reader.fields(given, ("early", "late"), "{after_watermark: {early: {after_count: 2}}}")
    return AfterWatermark(**{name: reader.at(name).read(tree) for name, tree in found.items() if tree is not None})


def _after_processing_time(given: Any, reader: _Reader) -> Trigger:
    if not isinstance(given, Mapping):
        return AfterProcessingTime(0 if given is None else given)
    return AfterProcessingTime(**reader.fields(given, ("delay", "align"), "{delay: 1m, align: 1m}"))


def _or_finally(given: Any, reader: _Reader) -> Trigger:
    found = reader.fields(given, ("main", "until"), "{or_finally: {main: {after_count: 2}, until: after_watermark}}")
    if len(found) < 2:
        raise reader.error("needs both `main` and `until`")
    return OrFinally(reader.at("main").read(found["main"]), reader.at("until").read(found["until"]))


def _custom(given: Any, reader: _Reader) -> Trigger:
    found: dict[str, Any] = {"class": given}
    if not isinstance(given, str):
        found = reader.fields(given, ("class", "with"), "{custom: {class: 'module:Class', with: {limit: 3}}}")
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
    "default": lambda given, reader: Default(),
    "never": lambda given, reader: Never(),
    "after_watermark": _after_watermark,
    "after_count": lambda given, reader: AfterCount(given),
    "after_bytes": lambda given, reader: AfterBytes(given),
    "after_processing_time": _after_processing_time,
    "after_percentile_watermark": lambda given, reader: AfterPercentileWatermark(given),
    "repeat": lambda given, reader: Repeat(reader.read(given)),
    "once": lambda given, reader: Once(reader.read(given)),
    "any": lambda given, reader: AfterAny(*reader.several(given)),
    "all": lambda given, reader: AfterAll(*reader.several(given)),
    "each": lambda given, reader: AfterEach(*reader.several(given)),
    "or_finally": _or_finally,
    "custom": _custom,
}
