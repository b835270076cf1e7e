"""A YAML file as data that remembers its lines, with parameters filled in, and the problems found in it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from millwheel.core.times import duration_us
from millwheel.errors import PipelineError

MAX_BYTES = 1_000_000
PARAMETER = re.compile(r"\$\{\s*([A-Za-z_][A-Za-z0-9_-]*)\s*(?::-([^}]*))?\}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBER = re.compile(r"[+-]?(\d+|\d*\.\d+([eE][+-]?\d+)?)")


class Problems:
    """Everything wrong with one file, a sentence each."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[str] = []

    def add(self, line: int, place: str, text: str) -> None:
        """Note a problem at a line (1-based) and a dotted place in the document."""
        where = f"{self.file}:{line}: {place}: " if place else f"{self.file}:{line}: "
        self.found.append(where + text)

    def raise_any(self) -> None:
        """PipelineError with all that was found, in the order of lines."""
        if self.found:
            raise PipelineError(*sorted(set(self.found), key=_line_of))


def _line_of(problem: str) -> int:
    found = re.search(r":(\d+): ", problem)
    return int(found.group(1)) if found else 0


def hint(given: str, known: Collection[str]) -> str:
    """``; did you mean 'x'? Known: …`` for a name that is not one of ``known``."""
    close = difflib.get_close_matches(str(given), list(known), n=1)
    meant = f"; did you mean {close[0]!r}?" if close else "."
    return f"{meant} Known: {', '.join(sorted(known)) or 'none'}"


@dataclass(slots=True)
class Section:
    """A mapping in the document: typed access by name, with problems noted at the right line."""

    problems: Problems
    place: str
    line: int
    data: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)

    def at(self, name: str) -> int:
        """The line of a field (of the section, when it is absent)."""
        return self.lines.get(name, self.line)

    def path(self, name: str) -> str:
        """The dotted place of a field."""
        return f"{self.place}.{name}" if self.place else name

    def bad(self, name: str, text: str) -> None:
        """Note a problem with a field."""
        self.problems.add(self.at(name), self.path(name), text)

    def allow(self, *names: str) -> None:
        """Note every field that is not one of ``names``."""
        for name in self.data:
            if name not in names:
                self.bad(name, f"unknown field {name!r}{hint(name, names)}")

    def __contains__(self, name: str) -> bool:
        return name in self.data

    def get(self, name: str, default: Any = None) -> Any:
        """The plain value of a field."""
        value = self.data.get(name, default)
        return default if value is None else value

    def section(self, name: str) -> Section:
        """A field that must be a mapping (an empty one when it is absent or wrong)."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, Mapping):
            self.bad(name, f"must be a mapping, not {kind_of(value)}")
            value = None
        return as_section(self.problems, self.path(name), self.at(name), value or {})

    def sections(self, name: str) -> Iterator[tuple[str, Section]]:
        """The entries of a field that maps names to mappings; each name is checked."""
        outer = self.section(name)
        for key in outer.data:
            if not isinstance(key, str) or not _NAME.fullmatch(key):
                outer.bad(key, f"{key!r} is no valid name; use letters, digits, '-' and '_', at most 64")
                continue
            yield key, outer.section(key)

    def text(self, name: str, default: str = "") -> str:
        """A field that is text (numbers are taken as written)."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            self.bad(name, f"must be text, not {kind_of(value)}")
            return default
        return str(value)

    def number(self, name: str, default: int | None, least: int = 0) -> int | None:
        """A whole number of at least ``least``."""
        value = self.get(name, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.bad(name, f"must be a whole number of at least {least}, not {value!r}")
            return default
        return value

    def duration(self, name: str, default: int | None, never: bool = False) -> int | None:
        """A duration in µs; ``never`` (where it is allowed) is None."""
        value = self.get(name)
        if value is None:
            return default
        if never and value == "never":
            return None
        try:
            if isinstance(value, (bool, float)) or isinstance(value, int):
                raise ValueError(f"{value!r} has no unit; write for example {value}s")
            return duration_us(str(value))
        except ValueError as ex:
            self.bad(name, str(ex) + (", or never" if never else ""))
            return default

    def choice(self, name: str, known: Collection[str], default: str) -> str:
        """One of some words."""
        value = self.text(name, default)
        if value not in known:
            self.bad(name, f"unknown value {value!r}{hint(value, known)}")
            return default
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """One name, or a list of names."""
        value = self.get(name, [])
        values = value if isinstance(value, list) else [value]
        for one in values:
            if not isinstance(one, str) or not _NAME.fullmatch(one):
                self.bad(name, f"{one!r} is no valid name; use letters, digits, '-' and '_', at most 64")
        return tuple(one for one in values if isinstance(one, str) and _NAME.fullmatch(one))


def as_section(problems: Problems, place: str, line: int, data: Mapping[str, Any]) -> Section:
    """A section over a mapping that came from the document (with lines) or not (without)."""
    lines = {}
    if isinstance(data, CommentedMap):
        for key in data:
            try:
                lines[key] = data.lc.key(key)[0] + 1
            except (KeyError, TypeError, AttributeError):
                lines[key] = line
    return Section(problems, place, line, data, lines)


def kind_of(value: Any) -> str:
    """What a value is, in YAML's words."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return f"{value!r}"


def read_document(path: str) -> tuple[Any, Problems]:
    """The parsed file. Raises PipelineError when it cannot be read or is no YAML mapping."""
    problems = Problems(Path(path).name)
    try:
        raw = Path(path).read_bytes()
    except OSError as ex:
        raise PipelineError(f"{path}: cannot be read: {ex.strerror}; give the path of a pipeline's YAML file") from ex
    if len(raw) > MAX_BYTES:
        raise PipelineError(f"{path}: {len(raw)} bytes; a pipeline may have {MAX_BYTES}")
    try:
        yaml = YAML(typ="rt", pure=True)
        yaml.allow_duplicate_keys = False
        document = yaml.load(raw.decode("utf-8"))
    except UnicodeDecodeError as ex:
        raise PipelineError(f"{problems.file}: byte {ex.start} is not UTF-8; save the file as UTF-8") from ex
    except MarkedYAMLError as ex:
        mark = ex.problem_mark or ex.context_mark
        line = mark.line + 1 if mark is not None else 1
        words = " ".join(str(ex.problem or ex.context or "malformed").split("\n")[0].split())
        raise PipelineError(
            f"{problems.file}:{line}: malformed YAML: {words}; check the indentation, colons and quotes near this line"
        ) from ex
    except (YAMLError, ValueError, RecursionError, TypeError, AttributeError, KeyError, AssertionError) as ex:
        words = " ".join(str(ex).split())[:200]
        raise PipelineError(f"{problems.file}:1: malformed YAML: {words or type(ex).__name__}") from ex
    if not isinstance(document, CommentedMap):
        raise PipelineError(f"{problems.file}:1: a pipeline is a mapping with pipeline, streams, computations and sinks")
    return document, problems


def fill_in(node: Any, params: Mapping[str, str], problems: Problems, line: int = 1, place: str = "") -> Any:
    """The document with ``${name}`` replaced in every text; unknown names are noted."""
    if isinstance(node, TaggedScalar):
        problems.add(line, place, "YAML tags are not allowed; write the value without '!…'")
        return None
    if isinstance(node, CommentedMap):
        for key in list(node):
            below = node.lc.data[key][0] + 1 if node.lc.data and key in node.lc.data else line
            node[key] = fill_in(node[key], params, problems, below, f"{place}.{key}" if place else str(key))
        return node
    if isinstance(node, CommentedSeq):
        for i, item in enumerate(node):
            node[i] = fill_in(item, params, problems, line, f"{place}[{i}]")
        return node
    if isinstance(node, str):
        return _filled(str(node), params, problems, line, place)
    return node


def _filled(text: str, params: Mapping[str, str], problems: Problems, line: int, place: str) -> Any:
    def replace(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        if name in params:
            return str(params[name])
        if default is not None:
            return default
        problems.add(line, place, f"parameter ${{{name}}} has no value; give one with --set {name}=… or a default, ${{{name}:-…}}")
        return ""

    whole = PARAMETER.fullmatch(text)
    filled = PARAMETER.sub(replace, text)
    return _plain(filled) if whole else filled


def _plain(text: str) -> Any:
    """A value that is all parameter is a number or a truth value if it reads like one."""
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    return text
