"""Which Python files of a pipeline's folder its code imports, found by reading them, without running any.

Followed are ``import`` and ``from … import`` wherever they stand, functions included, and ``import_module`` with a
literal name. A package counts as a whole: its ``__init__`` may look for the others itself. What is imported under a
name that is only known when the code runs has to be declared (``ship:``).
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from importlib.machinery import all_suffixes
from pathlib import Path

ROOT_MARK = "identity.json"
"""What makes a folder the root of a run."""
OUTPUT_MARK = ".millwheel/results-of"
"""What makes a folder that of a sink's results."""
_COPY_MARKS = ("origin", "params.json")
"""What the copy of a pipeline below a root has beside its files."""
_SKIPPED = re.compile(r"\.|__pycache__$|.*\.egg-info$|node_modules$|venv$")
_OURS = "millwheel"
"""Workers have it loaded already, whatever lies in the folder."""
_BY_NAME = frozenset({"import_module", "__import__"})


def imported_files(folder: Path, modules: Iterable[str], declared: Iterable[Path] = ()) -> set[Path]:
    """The Python files below ``folder`` that ``modules`` (names with dots) and the Python among ``declared`` files
    reach by imports, those that hold them included. Names that are not found there lie elsewhere."""
    names, seen = list(modules), set[str]()
    found: set[Path] = set()
    fresh = [path for path in declared if path.suffix == ".py"]
    while names or fresh:
        while names:
            name = names.pop()
            if name not in seen and name.partition(".")[0] != _OURS:
                seen.add(name)
                fresh += [path for path in _files_of(name, folder) if path not in found]
        found.update(fresh)
        reading, fresh = set(fresh), []
        names = [name for path in reading if path.suffix == ".py" for name in _imports(path, folder)]
    return found


def files_below(folder: Path) -> Iterator[Path]:
    """Files below a folder, but nothing hidden, no environments or caches, no roots and no results of sinks."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(name for name in folders if not _SKIPPED.match(name) and not _is_of_others(here / name))
        yield from (here / name for name in sorted(files) if not _SKIPPED.match(name))


def tree_of(path: Path) -> ast.Module:
    """A file's syntax tree; an empty one when it is no Python, which is for whoever imports it to say."""
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return ast.Module([], [])


def missing_file_hint(ex: BaseException) -> str:
    """What to add to the text of an error about a file that the copy of a pipeline does not have, "" for others."""
    name = getattr(ex, "filename", None)
    if not isinstance(ex, FileNotFoundError) or not isinstance(name, str):
        return ""
    for folder in Path(name).absolute().parents:
        if all((folder / mark).is_file() for mark in _COPY_MARKS):
            relative = Path(name).absolute().relative_to(folder)
            return (
                "; of the pipeline's folder workers have the Python that it imports and the files that it declares: "
                f"if {relative} lies there, declare it (ship: [{relative}])"
            )
    return ""


def _is_of_others(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in (ROOT_MARK, OUTPUT_MARK, "pyvenv.cfg"))


def _files_of(name: str, folder: Path) -> Iterator[Path]:
    """What Python would load for ``a.b.c``: the packages on the way, as wholes, and the module."""
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
    return getattr(call.func, "id", "") or getattr(call.func, "attr", "")
