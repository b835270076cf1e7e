"""Finds the Python files of a pipeline's folder that its code imports, by reading files and without
running any.

It follows ``import`` and ``from … import`` anywhere, even in functions, and ``import_module`` with
a literal name. A package counts as a whole, because its ``__init__`` may search for its modules
itself. Declare (``ship:``) a module that is imported under a name computed at run time.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from importlib.machinery import all_suffixes
from pathlib import Path

ROOT_MARK = "identity.json"
"""A folder with one of these is the root of a run."""
OUTPUT_MARK = ".millwheel/results-of"
"""A folder with one of these contains a sink's results."""
_SKIPPED = re.compile(r"\.|__pycache__$|.*\.egg-info$|node_modules$|venv$")
_OURS = "millwheel"
"""Workers have already loaded this package, even if the folder has one of the same name."""
_BY_NAME = frozenset({"import_module", "__import__"})


def imported_files(
    folder: Path, modules: Iterable[str], declared: Iterable[Path] = ()
) -> set[Path]:
    """The Python files below ``folder`` that ``modules`` (dotted names) and the Python files among
    ``declared`` reach by imports, including the modules themselves. Names that are not found there
    are installed elsewhere."""
    names, seen = list(modules), set[str]()
    files: set[Path] = set()
    fresh = [path for path in declared if path.suffix == ".py"]
    while names or fresh:
        while names:
            name = names.pop()
            if name not in seen and name.partition(".")[0] != _OURS:
                seen.add(name)
                fresh += [path for path in _files_of(name, folder) if path not in files]
        files.update(fresh)
        reading, fresh = set(fresh), []
        names = [
            name for path in reading if path.suffix == ".py" for name in _imports(path, folder)
        ]
    return files


def files_below(folder: Path) -> Iterator[Path]:
    """Files below a folder, except hidden files, environments, caches, roots and results of
    sinks."""
    for path, folders, files in os.walk(folder):
        here = Path(path)
        folders[:] = sorted(
            name for name in folders if not _SKIPPED.match(name) and not _is_of_others(here / name)
        )
        yield from (here / name for name in sorted(files) if not _SKIPPED.match(name))


def tree_of(path: Path) -> ast.Module:
    """A file's syntax tree. It is empty if the file is not Python; the import reports that."""
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return ast.Module([], [])


def _is_of_others(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in (ROOT_MARK, OUTPUT_MARK, "pyvenv.cfg"))


def _files_of(name: str, folder: Path) -> Iterator[Path]:
    """The files that Python would load for ``a.b.c``: the whole packages ``a`` and ``a.b``, and the
    module."""
    here = folder
    for part in name.split("."):
        if not part.isidentifier():
            return
        package = _with_suffix(here / part / "__init__")
        if package is not None:
            yield package
            yield from (path for path in files_below(here / part) if path.suffix == ".py")
        elif (module := _with_suffix(here / part)) is not None:
            yield module
            return
        elif not (here / part).is_dir():
            return
        here = here / part


def _with_suffix(path: Path) -> Path | None:
    candidates = (path.with_name(path.name + suffix) for suffix in all_suffixes())
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _imports(path: Path, folder: Path) -> Iterator[str]:
    """The names that a file imports, as seen from the folder."""
    package = path.relative_to(folder).parent.parts
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in _BY_NAME and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value:
                yield first.value


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
