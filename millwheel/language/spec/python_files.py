"""Pipelines written in Python: ``visits.py``, or ``visits.py:name`` if a file defines several.

The file is imported like any module of the pipeline's folder. It builds the same document as a YAML
file; from there on both are read in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from millwheel.connect.python_objects import import_file
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import PipelineError
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import Problems, did_you_mean

_PATH = re.compile(r"(?P<file>.*\.py)(?::(?P<variable>[^:/]*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Document:
    """A pipeline as a tree, and the problems found so far. Relative paths in it are relative to
    ``origin`` ("": to its file)."""

    top: YamlNode
    problems: Problems
    origin: str = ""


@runtime_checkable
class Documented(Protocol):
    """A pipeline that a Python file defines: millwheel.Pipeline."""

    def millwheel_document(self, file: str, prefix: str) -> Document:
        """The document as seen from ``file``; its code is found by the name ``prefix.slug``."""

    def spec(self, params: Mapping[str, str] | None = None) -> PipelineSpec:
        """The checked pipeline, whose code exists in this process only."""


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """A pipeline's file, and the requested variable in it ("": the only one)."""

    file: str
    variable: str = ""

    @classmethod
    def of(cls, path: str) -> PipelineFile:
        """From an argument of the user: ``p.yaml``, ``p.py`` or ``p.py:name``."""
        match = _PATH.fullmatch(path)
        return cls(path) if match is None else cls(match["file"], match["variable"] or "")

    @property
    def is_python(self) -> bool:
        """True if the file must be imported."""
        return self.file.endswith(".py")


def load_document(pipeline_file: PipelineFile) -> Document:
    """The document of a Python file. Raises PipelineError if it cannot be imported or defines no
    such pipeline."""
    module = import_file(pipeline_file.file)
    pipelines: dict[str, Documented] = {
        name: thing for name, thing in vars(module).items() if _is_pipeline(thing)
    }
    variable = _chosen(pipeline_file, pipelines)
    pipeline: Documented = pipelines[variable]
    return pipeline.millwheel_document(pipeline_file.file, f"{module.__name__}:{variable}.code")


def _is_pipeline(thing: Any) -> bool:
    return not isinstance(thing, type) and isinstance(thing, Documented)


def _chosen(pipeline_file: PipelineFile, pipelines: dict[str, Documented]) -> str:
    if pipeline_file.variable:
        if pipeline_file.variable in pipelines:
            return pipeline_file.variable
        hint = did_you_mean(pipeline_file.variable, pipelines) or "."
        there = ", ".join(pipelines) or "none"
        raise PipelineError(
            f"{pipeline_file.file}: there is no pipeline {pipeline_file.variable!r}{hint}"
            f" Pipelines in it: {there}"
        )
    different = {id(pipeline): name for name, pipeline in reversed(pipelines.items())}
    if len(different) == 1:
        return next(iter(different.values()))
    if not pipelines:
        raise PipelineError(
            f"{pipeline_file.file}: the file defines no pipeline; assign one at its top level:"
            " pipeline = Pipeline('name')"
        )
    names = sorted(different.values())
    raise PipelineError(
        f"{pipeline_file.file}: the file defines {len(names)} pipelines ({', '.join(names)}); say"
        f" which one: {Path(pipeline_file.file).name}:{names[0]}"
    )
