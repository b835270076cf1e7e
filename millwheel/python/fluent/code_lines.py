"""The location of a call in the user's files, and Python values as the nodes that a YAML file would
give."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from millwheel.core.model.times import duration_text
from millwheel.language.spec.reading.nodes import ForeignLine, YamlNode


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of a file."""

    file: str
    line: int

    def seen_from(self, file: str) -> int:
        """The line number. If the line is in another file than ``file``, the result also has that
        file."""
        return (
            self.line
            if Path(self.file).resolve() == Path(file).resolve()
            else ForeignLine(self.line, self.file)
        )


def here() -> CodeLine:
    """The innermost current line outside this package: the user's call."""
    frame = sys._getframe(1)
    package = os.path.dirname(os.path.dirname(sys._getframe(0).f_code.co_filename)) + os.sep
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame = frame.f_back
    return CodeLine(frame.f_code.co_filename, frame.f_lineno)


@dataclass(frozen=True, slots=True)
class Code:
    """A function, class or other object of the user's that a pipeline needs. ``slug`` names it in
    its pipeline."""

    thing: Any
    slug: str


@dataclass(frozen=True, slots=True)
class CodeKey:
    """A map with one entry, named by the ``module:name`` of some code."""

    code: Code
    value: Any


@dataclass(frozen=True, slots=True)
class At:
    """A value with the line of the call that gave it."""

    code_line: CodeLine
    value: Any


@dataclass(frozen=True, slots=True)
class NodeWriter:
    """Turns values into nodes. ``name_of`` returns the ``module:name`` by which workers find some
    code; ``file`` is the pipeline's own; ``complain(line, path, text)`` notes values that YAML
    cannot express."""

    file: str
    name_of: Callable[[Code], str]
    complain: Callable[[int, str, str], None]

    def node(self, value: Any, code_line: CodeLine, path: str = "") -> YamlNode:
        """The node of a value, with all values in it."""
        while isinstance(value, At):
            code_line, value = value.code_line, value.value
        if isinstance(value, CodeKey):
            value = {self.name_of(value.code): value.value}
        line = code_line.seen_from(self.file)
        if isinstance(value, Mapping):
            return self._map(value, code_line, YamlNode({}, line, path))
        if isinstance(value, (list, tuple)):
            node = YamlNode([], line, path)
            node.value = [
                self.node(item, code_line, node.child_path(i)) for i, item in enumerate(value)
            ]
            return node
        return self._scalar(value, line, path)

    def _map(self, value: Mapping[Any, Any], code_line: CodeLine, node: YamlNode) -> YamlNode:
        for name, item in value.items():
            if not isinstance(name, str):
                self.complain(
                    node.line, node.path, f"the name {name!r:.60} is not a text; write it in quotes"
                )
                continue
            node.value[name] = self.node(item, code_line, node.child_path(name))
            node.key_lines[name] = node.value[name].line
        return node

    def _scalar(self, value: Any, line: int, path: str) -> YamlNode:
        if isinstance(value, Code):
            value = self.name_of(value)
        elif isinstance(value, timedelta):
            value = duration_text(value // timedelta(microseconds=1))
        elif isinstance(value, datetime):
            value = value.isoformat()
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, str):
            return YamlNode(value, line, path, value)
        if value is None or isinstance(value, (bool, int, float)):
            text = (
                ""
                if value is None
                else str(value).lower()
                if isinstance(value, bool)
                else repr(value)
            )
            return YamlNode(value, line, path, text, plain=True)
        kind = type(value).__name__
        self.complain(
            line,
            path,
            f"a {kind} is not allowed here; give text, numbers, booleans, or lists and dicts of"
            " them",
        )
        return YamlNode(None, line, path)
