"""The rooms of the house: packages of ``millwheel``, what is in them, and which imports which.

    python -m tests.rooms           # print the map of files
    python -m tests.rooms --write   # write it into ARCHITECTURE.md
    python -m tests.rooms --arrows  # print which room imports which

A module that lies beside rooms (``workers/events.py`` beside ``workers/shard/``) is a room of its own here: otherwise
a package and what is in it would import each other by definition.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
PACKAGE = HOUSE / "millwheel"
GENERATED = PACKAGE / "pb"
PAGE = HOUSE / "ARCHITECTURE.md"
_BEGIN, _END = "<!-- map of files -->", "<!-- end of the map -->"


@cache
def modules() -> dict[str, Path]:
    """Dotted name to file, for everything that people wrote. A package is its ``__init__.py``."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if GENERATED not in path.parents:
            parts = path.relative_to(HOUSE).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def rooms() -> dict[Path, tuple[str, ...]]:
    """Folder to the names of its modules, without ``__init__``."""
    found: dict[Path, list[str]] = defaultdict(list)
    for path in modules().values():
        found[path.parent] += [path.name] if path.name != "__init__.py" else []
    return {folder: tuple(names) for folder, names in sorted(found.items())}


@cache
def room_of(module: str) -> str:
    path = modules()[module]
    beside_rooms = any(other != path.parent and path.parent in other.parents for other in rooms())
    return module if beside_rooms or path.name == "__init__.py" else module.rpartition(".")[0]


@cache
def arrows() -> dict[str, frozenset[str]]:
    """Room to the rooms that it imports, for types included."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in modules().items():
        for name in _imported(path):
            if room_of(name) != room_of(module):
                found[room_of(module)].add(room_of(name))
    return {room: frozenset(others) for room, others in found.items()}


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules() else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules().keys()


def circle() -> list[str]:
    """Rooms that import each other in a circle, if there are any."""
    try:
        TopologicalSorter(arrows()).prepare()
    except CycleError as ex:
        return list(ex.args[1])
    return []


def table() -> str:
    """The map of files, as ARCHITECTURE.md has it."""
    lines = ["| room | what it is for | files |", "|---|---|---|"]
    for folder, names in rooms().items():
        says = (ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or "").split("\n\n")
        files = " ".join(name.removesuffix(".py") for name in names)
        lines.append(f"| `{folder.relative_to(HOUSE).as_posix()}` | {' '.join(says[0].split())} | {files} |")
    return "\n".join(lines)


def page_with(text: str) -> str:
    """The page with ``text`` as its map."""
    page = PAGE.read_text(encoding="utf-8")
    return re.sub(f"{_BEGIN}.*{_END}", lambda _: f"{_BEGIN}\n\n{text}\n\n{_END}", page, flags=re.DOTALL)


def main() -> None:
    if "--arrows" in sys.argv:
        for room, others in sorted(arrows().items()):
            print(room, "->", *sorted(others))
    elif "--write" in sys.argv:
        PAGE.write_text(page_with(table()), encoding="utf-8")
    else:
        print(table())


if __name__ == "__main__":
    main()
