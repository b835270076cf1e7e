"""The common parts of sources of ``read``, sinks of ``write`` and lookups of ``look_up``.

Paths are as in YAML: relative to the file of the pipeline, and ``"${name}"`` or :func:`param` is
replaced by the value of ``--set name=value``. A setting that is None has its default; see
docs/pipeline.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, ClassVar

Duration = str | timedelta
"""A number and a unit, such as ``"500ms"``, ``"10s"``, ``"2m"`` or ``"1h30m"``; or a timedelta."""
PathText = str | os.PathLike[str]


def param(name: str, default: object = None) -> Any:
    """A parameter of the pipeline: the value of ``--set name=…``, else of the environment variable,
    else ``default``.

    The value is inserted when the pipeline is loaded, not when this is called. Use a parameter
    wherever a text, a number or a duration is expected: ``read("hits", FileSource(param("input"),
    "jsonl"), …)``.
    """
    return f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"


def secret(name: str) -> str:
    """A secret of the pipeline, for options of sources, sinks and callbacks. Each worker that uses
    it looks it up, and it is never written. It may be part of a longer text:
    ``f"postgres://me:{secret('PG')}@db"``."""
    return f"${{secret:{name}}}"


@dataclass(frozen=True)
class DeclaredOptions:
    """Base of all classes whose arguments are options."""

    def options(self) -> dict[str, Any]:
        """The options that were given, as in YAML."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _plain(value) for name, value in values.items() if value is not None}


class DeclaredEnd(DeclaredOptions):
    """Base of all sources, sinks, lookups and formats. ``_kind`` is the name of the kind in
    YAML."""

    _kind: ClassVar[str] = ""


class DeclaredFormat(DeclaredEnd):
    """Base of the formats that have options."""


class DeclaredSource(DeclaredEnd):
    """Base of the sources."""


class DeclaredSink(DeclaredEnd):
    """Base of the sinks."""


class DeclaredLookup(DeclaredEnd):
    """Base of the lookups."""


@dataclass(frozen=True)
class RegisteredEnd(DeclaredEnd):
    """Base of ends that installed packages registered under ``name``, with their options."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        return dict(self.settings)


class OtherSource(RegisteredEnd, DeclaredSource):
    """A source that an installed package registered under ``name``, with its options."""


class OtherSink(RegisteredEnd, DeclaredSink):
    """A sink that an installed package registered under ``name``, with its options."""


class OtherLookup(RegisteredEnd, DeclaredLookup):
    """A lookup that an installed package registered under ``name``, with its options."""


def _plain(value: Any) -> Any:
    if isinstance(value, DeclaredFormat):
        return {kind_of(value): value.options()}
    return value.options() if isinstance(value, DeclaredOptions) else value


def kind_of(end: DeclaredEnd) -> str:
    """The name of the kind in YAML."""
    return end.name if isinstance(end, RegisteredEnd) else end._kind
