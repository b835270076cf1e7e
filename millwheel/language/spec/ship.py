"""The ``ship:`` part: the files of a pipeline's folder that are sent to workers. These are the
Python files that it imports and the files that it declares; never roots, results, or undeclared
files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from millwheel.connect.python_objects import OBJECT_NAME
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.language.spec.imports import files_below, imported_files, tree_of
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader

_EXAMPLE = "[model.json, 'words/*.txt']"
_LONGEST_NAME = 200  # characters of an option that may be a file's name
_OURS = frozenset({"pipeline.yaml", "params.json", "origin", "entry"})
"""Files that a root keeps beside the shipped ones."""


def read_ship(reader: NodeReader, node: YamlNode | None) -> tuple[str, ...]:
    """Files and globs, relative to the pipeline's folder and inside it."""
    if node is None:
        return ()
    if node.is_map:
        reader.bad(
            node,
            f"must be a list of files beside the pipeline, not a map; write for example {_EXAMPLE}",
        )
        return ()
    texts = [(child, reader.text(child, "model.json")) for child in reader.items(node)]
    for child, text in texts:
        if text and (Path(text).is_absolute() or ".." in Path(text).parts):
            reader.bad(
                child,
                f"{text!r} lies outside of the pipeline's folder, and only what is in it is sent to"
                " workers; move the file there, or put it where workers find it themselves",
            )
    return tuple(text for _, text in texts if text)


def check_ship(reader: NodeReader, spec: PipelineSpec, top: YamlNode) -> None:
    """Problems of the declared files, and a warning for each file that the code names and that is
    not sent."""
    node = top.value.get("ship") if top.is_map else None
    if node is not None:
        _check_declared(reader, spec, node)
        if reader.problems.concerns(node.path):
            return
    for where, line, name in _undeclared(spec):
        text = f"{where} names {name}, which lies beside the pipeline and is not sent to workers"
        reader.problems.warn(line, "", f"{text}; if workers read it, declare it: ship: [{name}]")


def _check_declared(reader: NodeReader, spec: PipelineSpec, node: YamlNode) -> None:
    for pattern in spec.ship if not reader.problems.concerns(node.path) else ():
        paths = _matching(spec, (pattern,))
        if not paths:
            reader.bad(
                node,
                f"there is no file {pattern!r} in {spec.folder}; write names of files there, or"
                " globs",
            )
        for path in paths:
            if (
                path.relative_to(spec.folder).as_posix() in _OURS
                and path != Path(spec.file).resolve()
            ):
                reader.bad(
                    node,
                    f"{path.name} is the name of a file that MillWheel sends to each worker; rename"
                    " yours",
                )


def files_to_ship(spec: PipelineSpec) -> set[Path]:
    """The files below the pipeline's folder that workers need, including the pipeline file if it is
    Python."""
    folder, declared = Path(spec.folder), _matching(spec, spec.ship)
    modules = {text.partition(":")[0] for text in _texts(spec) if OBJECT_NAME.fullmatch(text)}
    if spec.file.endswith(".py"):
        modules.add(Path(spec.file).stem)
    return declared | set(_schema_files(spec)) | imported_files(folder, sorted(modules), declared)


def _schema_files(spec: PipelineSpec) -> Iterator[Path]:
    """Files beside the pipeline that a format of a source or a sink names: schemas and
    descriptors."""
    options = [stream.source.options for stream in spec.streams if stream.source is not None]
    options += [sink.options for sink in spec.sinks]
    folder = Path(spec.folder).resolve()
    for text in {
        text
        for each in options
        if isinstance(each.get("format"), Mapping)
        for text in _texts(each["format"])
    }:
        if 0 < len(text) <= _LONGEST_NAME and _is_data(folder / text, folder):
            yield folder / text


def _matching(spec: PipelineSpec, patterns: tuple[str, ...]) -> set[Path]:
    folder = Path(spec.folder)
    named = {folder / pattern for pattern in patterns}
    if all(path.is_file() for path in named):
        return named
    paths = {path for pattern in patterns for path in folder.glob(pattern)}
    below = {path for path in files_below(folder) if not paths.isdisjoint((path, *path.parents))}
    return below | {path for path in named if path.is_file()}


def _undeclared(spec: PipelineSpec) -> Iterator[tuple[str, int, str]]:
    """(where, line in the pipeline's file, name) of files that shipped code or options name."""
    folder, shipped, outside = Path(spec.folder), files_to_ship(spec), _outside(spec)
    named = [
        (f"{path.relative_to(folder)}:{line}", 1, base / text)
        for path in sorted(shipped)
        if path.suffix == ".py"
        for line, text in _literals(path)
        for base in {folder, path.parent}
    ]
    named += [
        (who, int(where.rpartition(":")[2] or 1), folder / text)
        for who, where, text in _options(spec)
    ]
    noted: set[Path] = set()
    for where, line, path in named:
        if path in noted or path in shipped or not _is_data(path, folder):
            continue
        if not any(
            fnmatch(str(path), pattern) or Path(pattern) in path.parents for pattern in outside
        ):
            noted.add(path)
            yield where, line, str(path.relative_to(folder))


def _options(spec: PipelineSpec) -> Iterator[tuple[str, str, str]]:
    """(whose, where, text) of the options that code gets. Options called ``path`` were excluded
    before."""
    option_sets = [
        (c.called.callback, c.where, c.called.options)
        for c in spec.computations
        if c.called is not None
    ]
    option_sets += [
        (f"{s.source.kind} of {s.name}", s.where, s.source.options)
        for s in spec.streams
        if s.source is not None
    ]
    option_sets += [
        (f"{sink.kind} of {sink.stream}", sink.where, sink.options) for sink in spec.sinks
    ]
    for who, where, options in option_sets:
        yield from (
            (who, where, text)
            for name, value in options.items()
            if name != "path"
            for text in _texts(value)
        )


def _is_data(path: Path, folder: Path) -> bool:
    if (
        len(path.name) > _LONGEST_NAME
        or path.suffix in (".py", ".yaml", ".yml")
        or "\0" in str(path)
    ):
        return False
    return path.is_relative_to(folder) and ".." not in path.parts and path.is_file()


def _outside(spec: PipelineSpec) -> list[str]:
    """The paths that sources read and sinks write."""
    options = [stream.source.options for stream in spec.streams if stream.source is not None]
    options += [sink.options for sink in spec.sinks]
    return [text for each in options for text in _texts(each.get("path"))]


def _literals(path: Path) -> Iterator[tuple[int, str]]:
    """Texts in a file that may name another: ``"words.txt"``, and ``HERE / "data" / "words.txt"``
    as one."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.BinOp, ast.Constant)):
            text = _joined(node)
            if 0 < len(text) <= _LONGEST_NAME and not text.startswith("/"):
                yield node.lineno, text


def _joined(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return "/".join(text for text in (_joined(node.left), _joined(node.right)) if text)
    return ""


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value, names in maps included."""
    if isinstance(value, str):
        yield value
    elif is_dataclass(value):
        for each in fields(value):
            yield from _texts(getattr(value, each.name))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from (*_texts(name), *_texts(inner))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)
