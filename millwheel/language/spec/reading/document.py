"""Reads a YAML file into nodes, under limits. nodes.py lists the accepted forms."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from millwheel.errors import PipelineError
from millwheel.language.spec.reading.nodes import MAX_BYTES, MAX_DEPTH, MAX_NODES, YamlNode
from millwheel.language.spec.reading.problems import Problems

_INT = re.compile(r"[-+]?[0-9][0-9_]*")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), math.inf),
    "-.inf": -math.inf,
    ".nan": math.nan,
}


def scalar(text: str) -> Any:
    """The value of a scalar without quotes, by the YAML 1.2 core schema: nothing, boolean, number,
    or text."""
    if len(text) > 40:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text


def read_text(path: str) -> str:
    """The file's text. Raises PipelineError if it is missing, too large or not UTF-8."""
    file = Path(path)
    try:
        if file.is_dir():
            raise PipelineError(
                f"{path} is a folder; give the path of the pipeline's YAML file, such as"
                f" {path}/pipeline.yaml"
            )
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as ex:
        reason = ex.strerror if isinstance(ex, OSError) and ex.strerror else ex
        raise PipelineError(
            f"{path}: the pipeline file cannot be read ({reason}); give the path of a YAML file"
        ) from None
    if len(data) > MAX_BYTES:
        raise PipelineError(f"{path}: the file is too large; the limit is {MAX_BYTES // 1000} kB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as ex:
        line = data.count(b"\n", 0, ex.start) + 1
        raise PipelineError(
            f"{path}:{line}: byte 0x{data[ex.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def parse(text: str, problems: Problems) -> YamlNode | None:
    """The document as a tree; None, and a problem, if it is malformed."""
    yaml: Any = YAML(typ="safe", pure=True)
    try:
        return _Builder(problems).build(yaml.parse(text))
    except _Refused as ex:
        problems.add(ex.line, "", ex.sentence)
    except MarkedYAMLError as ex:
        unclosed = "end of stream" in str(ex.problem) and ex.context_mark is not None
        mark = ex.context_mark if unclosed else ex.problem_mark or ex.context_mark
        line = mark.line + 1 if mark is not None else 1
        problems.add(line, "", _malformed(ex, text, line))
    except YAMLError as ex:  # characters that YAML forbids
        position = ex.position if isinstance(ex, ReaderError) else 0
        line = text.count("\n", 0, position) + 1
        problems.add(
            line,
            "",
            f"the file has a character that YAML does not allow ({_first_line(ex)}); remove it",
        )
    except Exception as ex:  # the parser's own errors on odd input
        problems.add(1, "", f"this cannot be read as YAML ({type(ex).__name__}: {_first_line(ex)})")
    return None


class _Refused(Exception):
    """The document exceeds a limit or uses a form that is not accepted."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line
        self.sentence = sentence


@dataclass(slots=True)
class _Open:
    """A map or list that is being filled. ``key`` waits for its value; ``before`` counts the values
    before it."""

    node: YamlNode
    anchor: str | None
    before: int
    key: YamlNode | None = None


class _Builder:
    """Builds the tree from events, with an explicit stack."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[YamlNode, int]] = {}
        self._root: YamlNode | None = None
        self._count = 0
        self._documents = 0

    def build(self, events: Iterator[Any]) -> YamlNode:
        for event in events:
            self._take(event)
        if self._root is None:
            raise _Refused(1, "the file is empty; it must hold a pipeline, see docs/pipeline.md")
        return _with_paths(self._root, "", 0, self._problems)

    def _take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _Refused(
                    line, "a second document starts here (---); a file holds one pipeline"
                )
        elif isinstance(event, (MappingEndEvent, SequenceEndEvent)):
            self._close()
        elif isinstance(event, AliasEvent):
            self._alias(event.anchor, line)
        elif isinstance(event, ScalarEvent):
            self._refuse_tag(event, line)
            self._scalar(event, line)
        elif isinstance(event, (MappingStartEvent, SequenceStartEvent)):
            self._refuse_tag(event, line)
            self._start(
                YamlNode({} if isinstance(event, MappingStartEvent) else [], line), event.anchor
            )

    def _refuse_tag(self, event: Any, line: int) -> None:
        tag = str(event.tag) if event.tag is not None else ""
        if tag not in ("", "!", "None"):
            raise _Refused(
                line, f"the tag {tag:.60} is not accepted: a pipeline is plain data. Remove it"
            )

    def _scalar(self, event: Any, line: int) -> None:
        plain = not event.style
        node = YamlNode(
            scalar(event.value) if plain else event.value, line, text=event.value, plain=plain
        )
        self._attach(node, 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, 1)

    def _start(self, node: YamlNode, anchor: str | None) -> None:
        before = self._count
        self._attach(node, 1)
        if len(self._open) >= MAX_DEPTH:
            raise _Refused(node.line, f"maps and lists are nested more than {MAX_DEPTH} deep")
        self._open.append(_Open(node, anchor, before))

    def _close(self) -> None:
        """An anchor counts only after its value has ended, so no value can contain itself."""
        closed = self._open.pop()
        if closed.anchor is not None:
            self._anchors[closed.anchor] = (closed.node, self._count - closed.before)

    def _alias(self, anchor: str, line: int) -> None:
        if anchor not in self._anchors:
            raise _Refused(
                line,
                f"*{anchor} refers to nothing: no complete value before it is marked &{anchor}",
            )
        target, size = self._anchors[anchor]
        self._attach(replace(target, line=line), size)

    def _attach(self, node: YamlNode, size: int) -> None:
        self._count += size
        if self._count > MAX_NODES:
            raise _Refused(
                node.line,
                f"the file has more than {MAX_NODES} values (aliases repeat what they refer to)",
            )
        if not self._open:
            self._root = node
            return
        parent = self._open[-1]
        if isinstance(parent.node.value, list):
            parent.node.value.append(node)
        elif parent.key is None:
            parent.key = _as_key(node)
        else:
            _put(parent.node, parent.key, node)
            parent.key = None


def _as_key(node: YamlNode) -> YamlNode:
    if not node.is_scalar:
        raise _Refused(
            node.line,
            "a map or a list cannot be a name; if this is a ${parameter}, put it in quotes:"
            ' "${name}"',
        )
    if node.text == "<<" and node.plain:
        raise _Refused(
            node.line,
            "merging maps (<<) is not accepted; write the fields out, or refer to one whole value"
            " by *alias",
        )
    return node


def _put(parent: YamlNode, key: YamlNode, node: YamlNode) -> None:
    if key.text in parent.value:
        parent.repeated.append((key.text, key.line))
        return
    parent.value[key.text] = node
    parent.key_lines[key.text] = key.line


def _with_paths(node: YamlNode, path: str, depth: int, problems: Problems) -> YamlNode:
    """A copy of the tree in which every node has its path; aliases get copies of their targets."""
    if depth > MAX_DEPTH:
        raise _Refused(node.line, f"maps and lists are nested more than {MAX_DEPTH} deep")
    copy = YamlNode(node.value, node.line, path, node.text, node.plain, key_lines=node.key_lines)
    if isinstance(node.value, dict):
        copy.value = {}
        for name, child in node.value.items():
            child_copy = copy.value[name] = _with_paths(
                child, copy.child_path(name), depth + 1, problems
            )
            child_copy.line = node.key_lines[name]
        for name, line in node.repeated:
            first = node.key_lines[name]
            problems.add(
                line,
                copy.child_path(name),
                f"this name is already in line {first}; remove or rename one",
            )
    elif isinstance(node.value, list):
        copy.value = [
            _with_paths(child, copy.child_path(i), depth + 1, problems)
            for i, child in enumerate(node.value)
        ]
    return copy


def _malformed(ex: MarkedYAMLError, text: str, line: int) -> str:
    what = " ".join(part for part in (ex.context, ex.problem) if part).replace("\n", " ")
    lines = text.splitlines()
    excerpt = lines[line - 1].strip() if line <= len(lines) else ""
    at = f" at `{excerpt:.60}`" if excerpt else ""
    return f"this is not YAML: {what}{at}. {_advice(what, excerpt)}"


def _advice(what: str, excerpt: str) -> str:
    if "\\t" in what:
        return "Indent with spaces, not with tabs"
    if re.search(r"(?<![\"'])\$\{", excerpt):
        return 'Put quotes around parameters: "${name}"'
    if "mapping values are not allowed" in what:
        return "Check the indentation, and put quotes around a text that holds `: `"
    if "expected ',' or" in what:
        return "Check for a missing comma or bracket"
    if "found undefined alias" in what or "alias" in what:
        return "Put quotes around a text that begins with *"
    return "Check indentation, colons, quotes and brackets"


def _first_line(ex: Exception) -> str:
    return str(ex).splitlines()[0][:200] if str(ex) else type(ex).__name__
